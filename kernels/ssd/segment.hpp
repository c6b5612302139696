#pragma once

#include <cstdint>

#include "execution/op.hpp"
#include "kernels/ssd/ssd.hpp"

/// A scan over a sequence that several ranks share: each has a segment of as many tokens, computes
/// what its own tokens leave behind from a state of zero, and, with that of all segments, the state
/// that enters its own (Mamba-2, arXiv 2405.21060, section 8.2). ssd_forward and ssd_backward do
/// the rest, by SsdEnds and SsdEndGradients.
namespace stowage::kernels {

/// Elements of what a segment tells the others: a state (H, P, N), then a decay for each head.
std::int64_t ssd_segment_elements(const SsdShape& shape);

/// to = the state after the last token if it was zero before the first, and the decay over all
/// tokens: what the state before them is multiplied with, 0 if a document begins behind the first
/// token. `to` has ssd_segment_elements of the accumulation dtype.
void ssd_segment_state(execution::Queue& queue, const SsdShape& shape,
                       const SsdInputOperands& inputs, const execution::View& to);

/// The mirror image: to = the gradient of the state before the first token if that of the state
/// after the last is zero, and the same decays. dy (n, H*P).
void ssd_segment_adjoint(execution::Queue& queue, const SsdShape& shape, const execution::View& dy,
                         const SsdInputOperands& inputs, const execution::View& to);

/// state (H, P, N) = what enters segment `segment`, from the states that all of them left.
///
/// all: ssd_segment_elements of each segment, in order. seq_idx (n) int32: the document of every
/// token of all segments, n / segments of them each; between two segments of different documents
/// nothing passes. Summed from the first segment on, so the bits depend on no rank.
void ssd_enter_state(execution::Queue& queue, const SsdShape& shape, const execution::View& all,
                     const execution::View& seq_idx, std::int64_t segments, std::int64_t segment,
                     const execution::View& state);

/// The mirror image: the gradient of the state that leaves `segment`, from the adjoints of all,
/// summed from the last segment on.
void ssd_enter_adjoint(execution::Queue& queue, const SsdShape& shape, const execution::View& all,
                       const execution::View& seq_idx, std::int64_t segments, std::int64_t segment,
                       const execution::View& state);

/// Of a state or an adjoint of a segment of `tokens`, and of what enters one of `segments`.
execution::Cost ssd_segment_cost(const SsdShape& shape, std::int64_t tokens,
                                 execution::Dtype storage);
execution::Cost ssd_enter_cost(const SsdShape& shape, std::int64_t segments,
                               execution::Dtype storage);

/// Host references; `to` as above.
template <class S>
void ssd_segment_state_ref(const SsdShape& shape, const SsdInputs<S>& inputs,
                           execution::Accumulation<S>* to);
template <class S>
void ssd_segment_adjoint_ref(const SsdShape& shape, const SsdInputs<S>& inputs, const S* dy,
                             execution::Accumulation<S>* to);

}  // namespace stowage::kernels
