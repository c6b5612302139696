#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>

#include "execution/op.hpp"
#include "kernels/matrix.hpp"

namespace stowage::kernels {

/// Sizes and options of a state-space scan. Head h reads B and C of group h / (heads / groups).
struct SsdShape {
  std::int64_t heads = 0;     ///< H, a multiple of groups
  std::int64_t head_dim = 0;  ///< P
  std::int64_t groups = 0;    ///< G
  std::int64_t state = 0;     ///< N
  std::int64_t chunk = 64;    ///< Q, tokens that are handled by products at once
  double dt_min = 0;          ///< step sizes are clamped to [dt_min, dt_max] after softplus
  double dt_max = std::numeric_limits<double>::infinity();
};

/// What enters and leaves a scan at its ends, all optional: a sequence that is cut into segments,
/// on one rank or several, is one scan a segment, each handed the state of the one before. States
/// are (H, P, N) of the accumulation dtype.
struct SsdEnds {
  execution::View initial_state;  ///< before the first token, whose document it is of; else zero
  execution::View final_state;    ///< written: after the last token
  execution::View total_decay;    ///< written, (H): d final_state / d initial_state
};

/// The same for the backward.
struct SsdEndGradients {
  execution::View initial_state;   ///< as in the forward
  execution::View dfinal_state;    ///< of the state after the last token; else zero
  execution::View dinitial_state;  ///< written: of the state before the first
};

/// What a scan reads.
struct SsdInputOperands {
  Columns x;                 ///< (n, H*P)
  Columns dt;                ///< (n, H), before bias and softplus
  Columns b, c;              ///< (n, G*N)
  execution::View a_log, d;  ///< (H)
  execution::View dt_bias;   ///< (H)
  execution::View seq_idx;   ///< (n) int32, the document of each token, non-decreasing
};

struct SsdForwardOperands {
  SsdInputOperands inputs;
  execution::View y;  ///< (n, H*P)
  execution::View workspace;
};

struct SsdBackwardOperands {
  execution::View dy;  ///< (n, H*P)
  SsdInputOperands inputs;
  Columns dx, ddt, db, dc;               ///< as the inputs
  execution::View da_log, dd, ddt_bias;  ///< (H) of the accumulation dtype
  execution::View workspace;
};

/// The selective state-space scan of Mamba-2 (SSD, arXiv 2405.21060), for each head:
///
///   dt_t = clamp(softplus(dt_raw_t + dt_bias), dt_min, dt_max),  A = -exp(a_log)
///   h_t = exp(dt_t A) h_{t-1} + dt_t X_t B_t^T,  y_t = h_t C_t + d X_t      (h: P x N)
///
/// h is zero before the first token of each document, at any position, but what `ends` says before
/// token 0. All floating operands have one storage dtype, columns are those of wider tensors.
/// State, decay and sums are kept in the accumulation dtype. `chunk` changes the rounding only.
void ssd_forward(execution::Queue& queue, const SsdShape& shape, const SsdForwardOperands& views,
                 const SsdEnds& ends = {});

/// Gradients of the above; the states are computed again from the inputs.
///
/// dx, ddt, db, dc are stored; da_log, dd, ddt_bias are stored or, with `accumulate`, added to. A
/// step size outside of [dt_min, dt_max] passes no gradient to dt.
void ssd_backward(execution::Queue& queue, const SsdShape& shape, const SsdBackwardOperands& views,
                  bool accumulate, const SsdEndGradients& ends = {});

/// Room for step sizes, decays and the state of each chunk (backward: and its gradient), on either
/// backend: a plan does not say which. The host's is the more where `chunk` is short.
std::size_t ssd_forward_workspace_bytes(const SsdShape& shape, std::int64_t tokens,
                                        execution::Dtype storage);
std::size_t ssd_backward_workspace_bytes(const SsdShape& shape, std::int64_t tokens,
                                         execution::Dtype storage);

/// Flops of the chunked form with whole Q x Q tiles of Q = 128, whatever chunk a kernel uses.
execution::Cost ssd_forward_cost(const SsdShape& shape, std::int64_t tokens,
                                 execution::Dtype storage);
execution::Cost ssd_backward_cost(const SsdShape& shape, std::int64_t tokens,
                                  execution::Dtype storage);

/// The inputs of a scan in host memory; tokens are the rows of x.
template <class S>
struct SsdInputs {
  Matrix<const S> x, dt, b, c;
  const S* a_log = nullptr;
  const S* d = nullptr;
  const S* dt_bias = nullptr;
  const std::int32_t* seq_idx = nullptr;
  const execution::Accumulation<S>* initial_state = nullptr;  ///< (H, P, N); nullptr: zero
};

/// What the forward writes beside y, where it is asked for.
template <class S>
struct SsdFinal {
  execution::Accumulation<S>* state = nullptr;        ///< (H, P, N)
  execution::Accumulation<S>* total_decay = nullptr;  ///< (H)
};

/// The gradients of those inputs.
template <class S>
struct SsdGradients {
  Matrix<S> dx, ddt, db, dc;
  execution::Accumulation<S>* da_log = nullptr;
  execution::Accumulation<S>* dd = nullptr;
  execution::Accumulation<S>* ddt_bias = nullptr;
  const execution::Accumulation<S>* dfinal_state = nullptr;  ///< given; nullptr: zero
  execution::Accumulation<S>* dinitial_state = nullptr;      ///< (H, P, N), or nullptr
};

/// Host references: the chunked algorithm of section 6. y and dy are dense.
template <class S>
void ssd_forward_ref(const SsdShape& shape, const SsdInputs<S>& inputs, S* y,
                     execution::Accumulation<S>* workspace, const SsdFinal<S>& final = {});
template <class S>
void ssd_backward_ref(const SsdShape& shape, const SsdInputs<S>& inputs, const S* dy,
                      const SsdGradients<S>& gradients, execution::Accumulation<S>* workspace,
                      bool accumulate);

/// The recurrence as written above, token by token: what tests compare the chunked form with.
template <class S>
void ssd_recurrence_ref(const SsdShape& shape, const SsdInputs<S>& inputs, S* y,
                        const SsdFinal<S>& final = {});

}  // namespace stowage::kernels
