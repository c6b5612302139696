#pragma once

#include <algorithm>

#include "ctest/kernels/operator_arrays.hpp"
#include "ctest/kernels/packed.hpp"
#include "kernels/gated_delta/gated_delta.hpp"
#include "kernels/gated_delta/segment.hpp"

/// A gated delta rule's inputs in the tests, and as the operands that its operators take.
namespace stowage::kernels::test {

struct DeltaCase {
  GatedDeltaShape shape;
  Packed packed;

  template <class Op>
  Op op(Dtype storage) const {
    Op op{};
    op.shape = shape;
    op.tokens = packed.tokens;
    op.storage = storage;
    return op;
  }
  /// The tokens [first, first + n).
  DeltaCase part(std::int64_t first, std::int64_t n) const {
    DeltaCase some = *this;
    some.packed.tokens = n;
    const auto begin = packed.document.begin() + first;
    some.packed.document.assign(begin, begin + n);
    return some;
  }
};

struct DeltaInputs {
  DeltaInputs(Random& random, const DeltaCase& test, Dtype storage) {
    const GatedDeltaShape& shape = test.shape;
    const std::int64_t n = test.packed.tokens;
    qkv = rounded(random.normal(n * shape.channels()), storage);
    ba = rounded(random.normal(n * shape.gates()), storage);
    if (shape.channel_decay) a = rounded(random.normal(n * shape.decays()), storage);
    a_log = rounded(random.uniform(shape.value_heads, -3, 1), storage);
    dt_bias = rounded(random.normal(shape.decays()), storage);
    dy = rounded(random.normal(n * shape.values()), storage);
  }
  /// Adds a state that enters and the gradient of the one that leaves.
  DeltaInputs& with_ends(Random& random, const DeltaCase& test) {
    initial = random.normal(test.shape.values() * test.shape.key_dim);
    dfinal = random.normal(test.shape.values() * test.shape.key_dim);
    return *this;
  }
  /// Those of the tokens [first, first + n).
  DeltaInputs part(const DeltaCase& test, std::int64_t first, std::int64_t n) const {
    const auto cut = [&](const Values& values, std::int64_t width) {
      return Values(values.begin() + first * width, values.begin() + (first + n) * width);
    };
    DeltaInputs some = *this;
    some.qkv = cut(qkv, test.shape.channels());
    some.ba = cut(ba, test.shape.gates());
    if (!a.empty()) some.a = cut(a, test.shape.decays());
    some.dy = cut(dy, test.shape.values());
    return some;
  }

  Values qkv, ba, a_log, dt_bias, dy;
  Values a;                // or empty
  Values initial, dfinal;  // (Hv, P, N), or empty
};

/// Sets what an operator reads, which are NaN around the columns.
inline void set_inputs(const GatedDeltaInputs<Array>& o, const DeltaCase& test,
                       const DeltaInputs& in) {
  set(o.qkv, in.qkv);
  set(o.ba, in.ba);
  if (o.a.view()) set(o.a, in.a);
  set(o.a_log, in.a_log);
  set(o.dt_bias, in.dt_bias);
  set(o.seq_idx, {test.packed.document.begin(), test.packed.document.end()});
  if (o.initial_state.view()) set(o.initial_state, in.initial);
}

struct DeltaResults {
  Values y, final_state;
};
struct DeltaGradients {
  Values dqkv, dba, da_log, ddt_bias, dinitial;
  Values da;  // or empty
};

/// On the host.
inline DeltaResults delta_forward(const DeltaCase& c, Dtype storage, const DeltaInputs& in) {
  GatedDeltaForward op = c.op<GatedDeltaForward>(storage);
  op.initial_state = !in.initial.empty();
  op.final_state = true;
  Random unused;
  const Arrays<GatedDeltaForward> o = make_arrays(op, unused);
  set_inputs(o.inputs, c, in);
  run(op, o);
  return {o.y.values(), o.final_state.values()};
}

/// On the host, twice: the second time what is summed over tokens is added to, and must double.
inline DeltaGradients delta_backward(const DeltaCase& c, Dtype storage, const DeltaInputs& in) {
  GatedDeltaBackward op = c.op<GatedDeltaBackward>(storage);
  op.initial_state = !in.initial.empty();
  op.dfinal_state = !in.dfinal.empty();
  op.dinitial_state = true;
  Random unused;
  const Arrays<GatedDeltaBackward> o = make_arrays(op, unused);
  set_inputs(o.inputs, c, in);
  set(o.dy, in.dy);
  if (op.dfinal_state) set(o.dfinal_state, in.dfinal);
  const auto results = [&](bool accumulate) {
    op.accumulate = accumulate;
    run(op, o);
    return DeltaGradients{
        stored(o.gradients.dqkv),    stored(o.gradients.dba),
        o.gradients.da_log.values(), o.gradients.ddt_bias.values(),
        o.dinitial_state.values(),   o.gradients.da.view() ? o.gradients.da.values() : Values()};
  };
  const auto doubled = [](Values values) {
    for (double& value : values) value *= 2;
    return values;
  };
  DeltaGradients first = results(false);
  const DeltaGradients added = results(true);
  EXPECT_EQ(added.dqkv, first.dqkv);
  EXPECT_EQ(added.dba, first.dba);
  EXPECT_EQ(added.da, first.da);
  EXPECT_EQ(added.da_log, doubled(first.da_log));
  EXPECT_EQ(added.ddt_bias, doubled(first.ddt_bias));
  return first;
}

/// What a segment leaves, an adjoint or a state, on the host.
template <bool kAdjoint>
Values delta_segment(const DeltaCase& c, const DeltaInputs& in) {
  const auto op = c.op<GatedDeltaSegment<kAdjoint>>(Dtype::fp64);
  Random unused;
  const auto o = make_arrays(op, unused);
  set_inputs(o.inputs, c, in);
  if (kAdjoint) set(o.dy, in.dy);
  run(op, o);
  return o.to.values();
}

}  // namespace stowage::kernels::test
