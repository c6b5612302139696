#pragma once

#include "kernels/gated_delta/gated_delta.hpp"

/// A gated delta rule over a sequence that several ranks share: each has a segment of as many
/// tokens. What a segment does to the state that enters it is linear, S -> S M + L: each rank tells
/// the others its L (P x N) and M (N x N) of every head, and composes what enters its own segment.
/// GatedDeltaForward and GatedDeltaBackward do the rest, by the states at their ends.
namespace stowage::kernels {

/// Elements of what a segment tells the others.
inline std::int64_t gated_delta_segment_elements(const GatedDeltaShape& shape) {
  return (shape.values() + shape.value_heads * shape.key_dim) * shape.key_dim;
}

/// to = (Hv, P, N) the state after the last token if it was zero before the first, then (Hv, N, N)
/// what the state before is multiplied with: the product of alpha (I - beta k k^T), 0 if a document
/// begins behind the first token.
///
/// kAdjoint, the mirror image: to = the gradient of the state before the first token if that of the
/// state after the last is zero, and the same matrices.
template <bool kAdjoint>
struct GatedDeltaSegment {
  static constexpr std::string_view kName =
      kAdjoint ? "gated_delta_segment_adjoint" : "gated_delta_segment_state";
  GatedDeltaShape shape;
  std::int64_t tokens;
  execution::Dtype storage;

  template <class T>
  struct Operands {
    GatedDeltaInputs<T> inputs;  ///< without an initial state
    In<T> dy;                    ///< of the adjoint alone
    SumsOut<T> to;               ///< gated_delta_segment_elements
    SumsOut<T> workspace;
  };
  void each(auto&& f, auto&... o) const {
    const execution::Dtype sums = execution::accumulation(storage);
    GatedDeltaForward::each_input(shape, tokens, storage, f, o.inputs...);
    f(in("initial_state", sums, {}).when(false), o.inputs.initial_state...);
    f(in("dy", storage, {tokens, shape.values()}).when(kAdjoint), o.dy...);
    f(out("to", sums, {gated_delta_segment_elements(shape)}), o.to...);
    f(workspace(workspace_bytes()), o.workspace...);
  }
  std::size_t workspace_bytes() const;
  std::string fault() const { return shape.fault(); }
  STOWAGE_OPERATOR_MEMBERS;
};

/// state = what enters segment `segment`, from what all of them left; between two segments of
/// different documents nothing passes. Composed from the first segment on, so the bits depend on
/// no rank.
///
/// kAdjoint, the mirror image: the gradient of the state that leaves `segment`, from all adjoints,
/// from the last segment on.
template <bool kAdjoint>
struct GatedDeltaEnter {
  static constexpr std::string_view kName =
      kAdjoint ? "gated_delta_enter_adjoint" : "gated_delta_enter_state";
  GatedDeltaShape shape;
  std::int64_t tokens;  ///< of all segments
  std::int64_t segments, segment;
  execution::Dtype storage;

  template <class T>
  struct Operands {
    SumsIn<T> all;                      ///< what each segment left, in order
    Of<T, const std::int32_t> seq_idx;  ///< the document of every token of all segments
    SumsOut<T> state;
    SumsOut<T> workspace;  ///< for one state more
  };
  void each(auto&& f, auto&... o) const {
    const execution::Dtype sums = execution::accumulation(storage);
    f(in("all", sums, {segments * gated_delta_segment_elements(shape)}), o.all...);
    f(in("seq_idx", execution::Dtype::int32, {tokens}), o.seq_idx...);
    f(out("state", sums, shape.states()), o.state...);
    f(workspace(workspace_bytes()), o.workspace...);
  }
  std::size_t workspace_bytes() const;
  std::string fault() const;
  execution::Cost cost() const;
  void run(execution::Queue& queue, const Operands<execution::View>& views) const;
};

/// The operators by which segments of a sequence hand on their states.
struct GatedDeltaScan {
  using Shape = GatedDeltaShape;
  template <class T>
  using Inputs = GatedDeltaInputs<T>;
  template <bool kAdjoint>
  using Segment = GatedDeltaSegment<kAdjoint>;
  template <bool kAdjoint>
  using Enter = GatedDeltaEnter<kAdjoint>;
  static std::int64_t segment_elements(const Shape& shape) {
    return gated_delta_segment_elements(shape);
  }
};

}  // namespace stowage::kernels
