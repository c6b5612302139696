#pragma once

#include <cstdint>

#include "kernels/norm/group_shares.hpp"
#include "kernels/norm/head_rmsnorm.hpp"

/// The launches of the norms' kernels, behind the checks of their queue forms: on a cudaStream_t,
/// returning the cudaError_t. S is float or Bf16; rstd, dw and partial sums are fp32.
namespace stowage::kernels::norm {

/// Partial sums of dw: each is the sum over some rows, made by one block (or by one team of warps
/// for each group) that walks through the rows with a fixed stride. A constant, so that the order
/// of the sum over rows depends on shapes alone; two blocks on each of the 132 multiprocessors of a
/// Hopper GPU.
inline constexpr std::int64_t kPartials = 264;

template <class S>
struct RmsnormForward {
  std::int64_t rows, width;
  const S* x;
  const S* delta;  ///< or null
  const S* w;
  S* sum;  ///< or null
  S* y;
  float* rstd;
  float eps;
  float* amax;          ///< or null
  float weight_offset;  ///< added to w: 1 if it is zero-centred
};

template <class S>
struct RmsnormBackward {
  std::int64_t rows, width;
  const S* dy;
  const S* x;
  const S* w;
  const float* rstd;
  const S* dresidual;  ///< or null
  S* dx;
  float* dw;
  float* partials;  ///< (kPartials, width)
  bool accumulate;
  float* amax;  ///< of dx, or null
  float weight_offset;
};

template <class S>
struct GatedForward {
  std::int64_t rows, width, groups;
  const S* y;
  const S* z;
  std::int64_t z_stride;
  const S* w;
  S* out;
  float eps;
  GroupSharePointers<float> shares;
  float* amax;  ///< or null
};

template <class S>
struct GatedBackward {
  std::int64_t rows, width, groups;
  const S* dout;
  const S* y;
  const S* z;
  std::int64_t z_stride;
  const S* w;
  S* dy;
  S* dz;
  std::int64_t dz_stride;
  float* dw;
  float* partials;  ///< (kPartials, width)
  float eps;
  bool accumulate;
  GroupSharePointers<float> shares;
  float* amax;  ///< of dz, or null
};

template <class S>
struct HeadForward {
  std::int64_t tokens;
  HeadSizes sizes;
  const S* in;
  const S* q_weight;
  const S* k_weight;
  S* out;
  float eps;
  float weight_offset;
};

template <class S>
struct HeadBackward {
  std::int64_t tokens;
  HeadSizes sizes;
  const S* dout;
  const S* in;
  const S* q_weight;
  const S* k_weight;
  S* din;
  float* dq_weight;
  float* dk_weight;
  float* partials;  ///< (2, kPartials, head_dim): of queries, of keys
  float eps;
  bool accumulate;
  float weight_offset;
};

template <class S>
int launch(const HeadForward<S>& args, void* stream);
template <class S>
int launch(const HeadBackward<S>& args, void* stream);
template <class S>
int launch(const RmsnormForward<S>& args, void* stream);
template <class S>
int launch(const RmsnormBackward<S>& args, void* stream);
template <class S>
int launch(const GatedForward<S>& args, void* stream);
template <class S>
int launch(const GatedBackward<S>& args, void* stream);
template <class S>
int launch(const GatedSums<S>& args, void* stream);

/// sum (width), or sum +=, = the sum of partials (count, width) in a fixed order.
int launch_partial_sums(std::int64_t count, std::int64_t width, const float* partials, float* sum,
                        bool accumulate, void* stream);

/// total += the mean squares of rows, by their rstd, in a fixed order.
int launch_mean_squares(std::int64_t rows, const float* rstd, float eps, float* total,
                        void* stream);

}  // namespace stowage::kernels::norm
