// A sequence that ranks share: every segment tells the others what it leaves, takes what enters it
// from them, and the scans of all segments are the scan of the whole, forward and backward.
#include "kernels/ssd/segment.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "ctest/kernels/scan_case.hpp"
#include "execution/error.hpp"

namespace stowage::kernels::test {
namespace {

const SsdShape kShape{.heads = 4, .head_dim = 3, .groups = 2, .state = 5, .chunk = 4};
constexpr std::int64_t kInner = 12, kShared = 10, kHeads = 4;

using Inputs = ScanInputs;

struct Gradients {
  Values dxbc, ddt, da_log, dd, ddt_bias;
};

// The tokens [first, first + n) of a sequence.
class Segment {
 public:
  Segment(const Packed& packed, const Inputs& in, std::int64_t first, std::int64_t n)
      : case_(part_of({kShape, packed}, first, n)), in_(in.part({kShape, packed}, first, n)) {}

  Values leave(bool adjoint) const {
    return adjoint ? left<SsdSegmentAdjoint>() : left<SsdSegmentState>();
  }
  Values forward(const Array& initial) const {
    SsdForward op = case_.op<SsdForward>(Dtype::fp64);
    op.initial_state = static_cast<bool>(initial.view());
    Arrays<SsdForward> o = arrays(op);
    o.inputs.initial_state = initial;
    run(op, o);
    return o.y.values();
  }
  Gradients backward(const Array& initial, const Array& dfinal) const {
    SsdBackward op = case_.op<SsdBackward>(Dtype::fp64);
    op.initial_state = static_cast<bool>(initial.view());
    op.dfinal_state = static_cast<bool>(dfinal.view());
    Arrays<SsdBackward> o = arrays(op);
    o.inputs.initial_state = initial;
    o.dfinal_state = dfinal;
    set(o.dy, in_.dy);
    run(op, o);
    return {stored(o.gradients.dxbc), stored(o.gradients.ddt), o.gradients.da_log.values(),
            o.gradients.dd.values(), o.gradients.ddt_bias.values()};
  }

 private:
  template <class Op>
  Arrays<Op> arrays(const Op& op) const {
    Random unused;
    Arrays<Op> o = make_arrays(op, unused);
    o.inputs.initial_state = {};
    set_inputs(o.inputs, case_, in_);
    return o;
  }
  template <class Op>
  Values left() const {
    const Op op = case_.op<Op>(Dtype::fp64);
    const Arrays<Op> o = arrays(op);
    if (o.dy.view()) set(o.dy, in_.dy);
    run(op, o);
    return o.to.values();
  }

  ScanCase case_;
  Inputs in_;
};

// What enters a segment.
template <class Op>
Array entering(const Packed& packed, const Array& all, std::int64_t segments,
               std::int64_t segment) {
  const Array state(Dtype::fp64, kShape.states());
  run(Op{.shape = kShape,
         .tokens = packed.tokens,
         .segments = segments,
         .segment = segment,
         .storage = Dtype::fp64},
      {.all = all, .seq_idx = packed.seq_idx(), .state = state});
  return state;
}

void append(Values& to, const Values& part) { to.insert(to.end(), part.begin(), part.end()); }
void add(Values& to, const Values& part) {
  to.resize(part.size(), 0);
  for (std::size_t i = 0; i < part.size(); ++i) to[i] += part[i];
}

// Documents that cross segments, end with one, have one token, and fill several segments.
std::vector<Packed> packings() {
  return {Packed({24}),       Packed({5, 1, 6, 12}), Packed({1, 11, 1, 9}, 2),
          Packed({2, 20, 2}), Packed({6, 6, 6, 6}),  Packed({7, 0, 0, 17})};
}

TEST(ssd_segment, segments_make_the_whole_scan) {
  Random random;
  for (const Packed& packed : packings())
    for (const std::int64_t segments : {1, 2, 3, 4, 8}) {
      SCOPED_TRACE(testing::Message()
                   << packed.starts.size() - 1 << " documents in " << segments << " segments");
      const std::int64_t n = packed.tokens / segments;
      const Inputs in(random, {kShape, packed}, Dtype::fp64);
      const Segment whole(packed, in, 0, packed.tokens);
      std::vector<Segment> parts;
      Values states, adjoints;
      for (std::int64_t s = 0; s < segments; ++s) {
        parts.emplace_back(packed, in, s * n, n);
        append(states, parts.back().leave(false));
        append(adjoints, parts.back().leave(true));
      }
      const std::int64_t elements = segments * ssd_segment_elements(kShape);
      const Array left(Dtype::fp64, {elements}, states), right(Dtype::fp64, {elements}, adjoints);
      Values y;
      Gradients sum;
      for (std::int64_t s = 0; s < segments; ++s) {
        const Array initial = entering<SsdEnterState>(packed, left, segments, s);
        const Array dfinal = entering<SsdEnterAdjoint>(packed, right, segments, s);
        const Segment& part = parts[s];
        append(y, part.forward(initial));
        const Gradients g = part.backward(initial, dfinal);
        for (Values Gradients::*tokens : {&Gradients::dxbc, &Gradients::ddt})
          append(sum.*tokens, g.*tokens);
        for (Values Gradients::*summed : {&Gradients::da_log, &Gradients::dd, &Gradients::ddt_bias})
          add(sum.*summed, g.*summed);
      }
      EXPECT_LT(relative_error(y, whole.forward({})), 1e-13);
      const Gradients expected = whole.backward({}, {});
      for (Values Gradients::*gradient : {&Gradients::dxbc, &Gradients::ddt, &Gradients::da_log,
                                          &Gradients::dd, &Gradients::ddt_bias})
        EXPECT_LT(relative_error(sum.*gradient, expected.*gradient), 1e-13);
    }
}

// The recurrence token by token: h_t = a_t h_{t-1} + dt_t x_t b_t, from zero where a document
// begins, and y_t = h_t c_t + D x_t.
class Recurrence {
 public:
  Recurrence(const Packed& packed, const Inputs& in) : packed_(packed), in_(in) {}

  /// (H, P, N) state behind the tokens [first, end), from zero; zero without any.
  Values state(std::int64_t first, std::int64_t end) const {
    Values h(kHeads * kState, 0.0);
    for (std::int64_t t = first; t < end; ++t)
      for_each([&](std::size_t i, std::int64_t head, std::int64_t p, std::int64_t n) {
        const double before = t > first && packed_.same(t - 1, t) ? h[i] : 0;
        h[i] = decay(t, head) * before + step(t, head) * in_.x[at(t * kInner + head * 3 + p)] *
                                             in_.b[at(t * kShared + head / 2 * 5 + n)];
      });
    return h;
  }
  /// Its gradient before the tokens [first, end), from dy of these alone.
  Values adjoint(std::int64_t first, std::int64_t end) const {
    Values g(kHeads * kState, 0.0);
    for (std::int64_t t = end - 1; t >= first; --t)
      for_each([&](std::size_t i, std::int64_t head, std::int64_t p, std::int64_t n) {
        const double behind = t + 1 < end && packed_.same(t, t + 1) ? g[i] : 0;
        g[i] = decay(t, head) * (behind + in_.dy[at(t * kInner + head * 3 + p)] *
                                              in_.c[at(t * kShared + head / 2 * 5 + n)]);
      });
    return g;
  }
  /// What a state before these tokens is multiplied with, for each head.
  Values decays(std::int64_t first, std::int64_t end) const {
    Values all(kHeads, 1.0);
    for (std::int64_t head = 0; head < kHeads; ++head)
      for (std::int64_t t = first; t < end; ++t)
        all[at(head)] *= t > first && !packed_.same(t - 1, t) ? 0 : decay(t, head);
    return all;
  }

 private:
  static constexpr std::int64_t kState = 15;

  template <class F>
  static void for_each(F&& f) {
    for (std::int64_t i = 0; i < kHeads * kState; ++i) f(at(i), i / kState, i % kState / 5, i % 5);
  }
  double step(std::int64_t t, std::int64_t head) const {
    return std::log1p(std::exp(in_.dt[at(t * kHeads + head)] + in_.dt_bias[at(head)]));
  }
  double decay(std::int64_t t, std::int64_t head) const {
    return std::exp(-step(t, head) * std::exp(in_.a_log[at(head)]));
  }

  const Packed& packed_;
  const Inputs& in_;
};

void expect_close(const Values& actual, const Values& expected, const char* what) {
  ASSERT_EQ(actual.size(), expected.size()) << what;
  for (std::size_t i = 0; i < actual.size(); ++i)
    EXPECT_NEAR(actual[i], expected[i], 1e-12 * std::max(1.0, std::abs(expected[i])))
        << what << " " << i;
}

// Segments of odd lengths and of one token, with documents that end with them or have one token.
TEST(ssd_segment, states_and_adjoints_are_those_of_the_recurrence) {
  Random random;
  for (const auto& [packed, segments] : {std::pair{Packed({21}), 3},
                                         {Packed({7, 7, 7}), 3},
                                         {Packed({6, 1, 1, 13}), 3},
                                         {Packed({1, 14, 5}, 5), 5},
                                         {Packed({2, 1, 3}, 1), 7},
                                         {Packed({1, 1, 1}), 3}}) {
    SCOPED_TRACE(testing::Message() << packed.tokens << " tokens in " << segments << " segments");
    const std::int64_t total = packed.tokens, n = total / segments;
    const Inputs in(random, {kShape, packed}, Dtype::fp64);
    const Recurrence plain(packed, in);
    Values states, adjoints;
    for (std::int64_t s = 0; s < segments; ++s) {
      const Segment part(packed, in, s * n, n);
      Values state = plain.state(s * n, (s + 1) * n), adjoint = plain.adjoint(s * n, (s + 1) * n);
      append(state, plain.decays(s * n, (s + 1) * n));
      append(adjoint, plain.decays(s * n, (s + 1) * n));
      expect_close(part.leave(false), state, "state");
      expect_close(part.leave(true), adjoint, "adjoint");
      append(states, state);
      append(adjoints, adjoint);
    }
    const auto elements = static_cast<std::int64_t>(states.size());
    const Array left(Dtype::fp64, {elements}, states), right(Dtype::fp64, {elements}, adjoints);
    for (std::int64_t s = 0; s < segments; ++s) {
      const Array initial = entering<SsdEnterState>(packed, left, segments, s);
      const Array dfinal = entering<SsdEnterAdjoint>(packed, right, segments, s);
      const std::int64_t first = s * n, end = first + n;
      const bool from = first > 0 && packed.same(first - 1, first);
      const bool to = end < total && packed.same(end - 1, end);
      expect_close(initial.values(), plain.state(0, from ? first : 0), "entering state");
      expect_close(dfinal.values(), plain.adjoint(to ? end : total, total), "entering adjoint");
    }
  }
}

// The state that leaves is that of the scan itself, in every storage type.
TEST(ssd_segment, state_is_that_of_the_scan) {
  Random random;
  const Packed packed({9, 1, 80, 60});
  for (const Dtype storage : kFloatingTypes) {
    const ScanCase c{kShape, packed};
    const Inputs in(random, c, storage);
    SsdForward scan = c.op<SsdForward>(storage);
    scan.final_state = true;
    const Arrays<SsdForward> whole = make_arrays(scan, random);
    set_inputs(whole.inputs, c, in);
    const SsdSegmentState segment = c.op<SsdSegmentState>(storage);
    Arrays<SsdSegmentState> left = make_arrays(segment, random);
    left.inputs = whole.inputs;
    run(scan, whole);
    run(segment, left);
    Values expected = whole.final_state.values();
    append(expected, whole.total_decay.values());
    EXPECT_LT(relative_error(left.to.values(), expected),
              tolerance(execution::accumulation(storage), 60, 8));
  }
}

TEST(ssd_segment, wrong_operands_are_named) {
  const SsdEnterState op{
      .shape = kShape, .tokens = 2, .segments = 2, .segment = 0, .storage = Dtype::fp32};
  Random random;
  Arrays<SsdEnterState> o = make_arrays(op, random);
  o.all = Array(Dtype::fp32, {3});
  try {
    run(op, o);
    FAIL() << "three elements were taken for two segments";
  } catch (const execution::Error& error) {
    EXPECT_NE(std::string(error.what()).find("ssd_enter_state"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace stowage::kernels::test
