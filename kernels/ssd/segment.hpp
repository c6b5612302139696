#pragma once

#include "kernels/ssd/ssd.hpp"

/// A scan over a sequence that several ranks share: each has a segment of as many tokens, computes
/// what its own tokens leave behind from a state of zero, and, with that of all segments, the state
/// that enters its own (Mamba-2, arXiv 2405.21060, section 8.2). SsdForward and SsdBackward do the
/// rest, by the states at their ends.
namespace stowage::kernels {

/// Elements of what a segment tells the others: a state (H, P, N), then a decay for each head.
inline std::int64_t ssd_segment_elements(const SsdShape& shape) {
  return shape.inner() * shape.state + shape.heads;
}

/// to = the state after the last token if it was zero before the first, and the decay over all
/// tokens: what the state before them is multiplied with, 0 if a document begins behind the first
/// token.
///
/// kAdjoint, the mirror image: to = the gradient of the state before the first token if that of the
/// state after the last is zero, and the same decays.
template <bool kAdjoint>
struct SsdSegment {
  static constexpr std::string_view kName = kAdjoint ? "ssd_segment_adjoint" : "ssd_segment_state";
  SsdShape shape;
  std::int64_t tokens;
  execution::Dtype storage;

  template <class T>
  struct Operands {
    SsdInputs<T> inputs;  ///< without an initial state
    In<T> dy;             ///< of the adjoint alone
    SumsOut<T> to;        ///< ssd_segment_elements
  };
  void each(auto&& f, auto&... o) const {
    const execution::Dtype sums = execution::accumulation(storage);
    SsdForward::each_input(shape, tokens, storage, f, o.inputs...);
    f(in("initial_state", sums, {}).when(false), o.inputs.initial_state...);
    f(in("dy", storage, {tokens, shape.inner()}).when(kAdjoint), o.dy...);
    f(out("to", sums, {ssd_segment_elements(shape)}), o.to...);
  }
  std::string fault() const { return shape.fault(); }
  STOWAGE_OPERATOR_MEMBERS;
};
using SsdSegmentState = SsdSegment<false>;
using SsdSegmentAdjoint = SsdSegment<true>;

/// state = what enters segment `segment`, from the states that all of them left; between two
/// segments of different documents nothing passes. Summed from the first segment on, so the bits
/// depend on no rank.
///
/// kAdjoint, the mirror image: the gradient of the state that leaves `segment`, from all adjoints,
/// summed from the last segment on.
template <bool kAdjoint>
struct SsdEnter {
  static constexpr std::string_view kName = kAdjoint ? "ssd_enter_adjoint" : "ssd_enter_state";
  SsdShape shape;
  std::int64_t tokens;  ///< of all segments
  std::int64_t segments, segment;
  execution::Dtype storage;

  template <class T>
  struct Operands {
    SumsIn<T> all;                      ///< ssd_segment_elements of each segment, in order
    Of<T, const std::int32_t> seq_idx;  ///< the document of every token of all segments
    SumsOut<T> state;
  };
  void each(auto&& f, auto&... o) const {
    const execution::Dtype sums = execution::accumulation(storage);
    f(in("all", sums, {segments * ssd_segment_elements(shape)}), o.all...);
    f(in("seq_idx", execution::Dtype::int32, {tokens}), o.seq_idx...);
    f(out("state", sums, shape.states()), o.state...);
  }
  std::string fault() const;
  execution::Cost cost() const;
  void run(execution::Queue& queue, const Operands<execution::View>& views) const;
};
using SsdEnterState = SsdEnter<false>;
using SsdEnterAdjoint = SsdEnter<true>;

/// The operators by which segments of a sequence hand on their states.
struct SsdScan {
  using Shape = SsdShape;
  template <class T>
  using Inputs = SsdInputs<T>;
  template <bool kAdjoint>
  using Segment = SsdSegment<kAdjoint>;
  template <bool kAdjoint>
  using Enter = SsdEnter<kAdjoint>;
  static std::int64_t segment_elements(const Shape& shape) { return ssd_segment_elements(shape); }
};

}  // namespace stowage::kernels
