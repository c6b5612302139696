#pragma once

#include <cuda.h>
#include <cuda_runtime_api.h>

#include <cstdint>

/// The launches behind mixed_product.cpp and mixed_backward.cpp; bf16 values as 16-bit words.
namespace stowage::kernels::mixed {

inline constexpr int kParts = 3;  ///< bf16 values that hold the 24 bits of an fp32

/// parts (rows, 3 columns) = the three parts of values (rows, columns), beside each other.
cudaError_t launch_split(std::int64_t rows, std::int64_t columns, const float* values,
                         std::uint16_t* parts, cudaStream_t stream);

/// sum (count), or sum += , = the sum of three arrays of `count` that lie one after another.
cudaError_t launch_join(std::int64_t count, const float* parts, float* sum, bool accumulate,
                        cudaStream_t stream);

/// Both gradients of a product at once (mixed_backward_sm90.cu): a block takes kSliceColumns of D
/// and a run of steps of kStepRows rows.
inline constexpr int kStepRows = 64;
inline constexpr int kSliceColumns = 128;

/// Columns of the parts of `padded` experts beside each other, in whole panels of 64.
constexpr int columns(int padded) { return (padded * kParts + 63) / 64 * 64; }
template <int kPadded>
inline constexpr int kColumns = columns(kPadded);

/// Calls f.operator()<kExperts>() for the padded number of experts.
template <class F>
cudaError_t with_experts(int padded, F&& f) {
  if (padded == 32) return f.template operator()<32>();
  if (padded == 64) return f.template operator()<64>();
  return f.template operator()<128>();
}

struct BackwardSizes {
  std::int64_t rows = 0;
  int experts = 0, padded = 0;  ///< padded: 32, 64 or 128
  int width = 0;                ///< D
  int steps = 0, slices = 0, splits = 0;
};

/// parts (rows, columns(padded)) bf16 of dy (rows, E).
cudaError_t launch_split_panels(const BackwardSizes& sizes, const float* dy, void* parts,
                                cudaStream_t stream);

/// Right behind launch_split_panels, which lets it begin only when all before that have ended.
/// dx, and each run's dw: partial (splits, E, D). Maps: parts (64, rows, panels) in boxes of all
/// panels of kStepRows rows; x, dx in boxes of 64 by kStepRows; w in boxes of 64 by padded.
cudaError_t launch_both(const BackwardSizes& sizes, const CUtensorMap& parts, const CUtensorMap& x,
                        const CUtensorMap& w, const CUtensorMap& dx, bool accumulate,
                        float* partial, cudaStream_t stream);

/// dw (E, D), or dw +=, from the partial sums.
cudaError_t launch_sum_runs(const BackwardSizes& sizes, const float* partial, float* dw,
                            bool accumulate, cudaStream_t stream);

}  // namespace stowage::kernels::mixed
