// A sequence that ranks share: every segment tells the others what it leaves, takes what enters it
// from them, and the scans of all segments are the scan of the whole, forward and backward.
#include "kernels/ssd/segment.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "ctest/kernels/packed.hpp"
#include "ctest/kernels/support.hpp"
#include "execution/error.hpp"

namespace stowage::kernels::test {
namespace {

const SsdShape kShape{.heads = 4, .head_dim = 3, .groups = 2, .state = 5, .chunk = 4};
constexpr std::int64_t kInner = 12, kShared = 10, kHeads = 4;

struct Inputs {
  Inputs(Random& random, std::int64_t n)
      : x(random.normal(n * kInner)),
        dt(random.normal(n * kHeads)),
        b(random.normal(n * kShared)),
        c(random.normal(n * kShared)),
        dy(random.normal(n * kInner)),
        a_log(random.uniform(kHeads, -3, 1)),
        d(random.normal(kHeads)),
        dt_bias(random.normal(kHeads)) {}
  Values x, dt, b, c, dy, a_log, d, dt_bias;
};

struct Gradients {
  Values dx, ddt, db, dc, da_log, dd, ddt_bias;
};

// The tokens [first, first + n) as operands.
class Segment {
 public:
  Segment(const Packed& packed, const Inputs& in, std::int64_t first, std::int64_t n)
      : n_(n),
        x_(part(in.x, first, kInner)),
        dt_(part(in.dt, first, kHeads)),
        b_(part(in.b, first, kShared)),
        c_(part(in.c, first, kShared)),
        dy_(part(in.dy, first, kInner)),
        a_log_(Dtype::fp64, {kHeads}, in.a_log),
        d_(Dtype::fp64, {kHeads}, in.d),
        dt_bias_(Dtype::fp64, {kHeads}, in.dt_bias),
        seq_idx_(
            int32_array({packed.document.begin() + first, packed.document.begin() + first + n})) {}

  SsdInputOperands operands() const {
    return {.x = all_columns(x_),
            .dt = all_columns(dt_),
            .b = all_columns(b_),
            .c = all_columns(c_),
            .a_log = a_log_,
            .d = d_,
            .dt_bias = dt_bias_,
            .seq_idx = seq_idx_};
  }
  Values leave(bool adjoint) const {
    const Array to(Dtype::fp64, {ssd_segment_elements(kShape)});
    on_queue([&](Queue& q) {
      adjoint ? ssd_segment_adjoint(q, kShape, dy_, operands(), to)
              : ssd_segment_state(q, kShape, operands(), to);
    });
    return to.values();
  }
  Values forward(const Array& initial) const {
    const Array y(Dtype::fp64, {n_, kInner});
    const Array room = workspace(ssd_forward_workspace_bytes(kShape, n_, Dtype::fp64));
    on_queue([&](Queue& q) {
      ssd_forward(q, kShape, {.inputs = operands(), .y = y, .workspace = room},
                  {.initial_state = initial, .final_state = {}, .total_decay = {}});
    });
    return y.values();
  }
  Gradients backward(const Array& initial, const Array& dfinal) const {
    const Array dx(Dtype::fp64, {n_, kInner}), ddt(Dtype::fp64, {n_, kHeads});
    const Array db(Dtype::fp64, {n_, kShared}), dc(Dtype::fp64, {n_, kShared});
    const Array da_log(Dtype::fp64, {kHeads}), dd(Dtype::fp64, {kHeads});
    const Array ddt_bias(Dtype::fp64, {kHeads});
    const Array room = workspace(ssd_backward_workspace_bytes(kShape, n_, Dtype::fp64));
    on_queue([&](Queue& q) {
      ssd_backward(q, kShape,
                   {.dy = dy_,
                    .inputs = operands(),
                    .dx = all_columns(dx),
                    .ddt = all_columns(ddt),
                    .db = all_columns(db),
                    .dc = all_columns(dc),
                    .da_log = da_log,
                    .dd = dd,
                    .ddt_bias = ddt_bias,
                    .workspace = room},
                   false, {.initial_state = initial, .dfinal_state = dfinal, .dinitial_state = {}});
    });
    return {dx.values(),     ddt.values(), db.values(),      dc.values(),
            da_log.values(), dd.values(),  ddt_bias.values()};
  }

 private:
  Array part(const Values& all, std::int64_t first, std::int64_t width) const {
    return {Dtype::fp64,
            {n_, width},
            Values(all.begin() + first * width, all.begin() + (first + n_) * width)};
  }

  std::int64_t n_;
  Array x_, dt_, b_, c_, dy_, a_log_, d_, dt_bias_, seq_idx_;
};

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
      const Inputs in(random, packed.tokens);
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
      const Array seq_idx = packed.seq_idx();
      Values y;
      Gradients sum;
      for (std::int64_t s = 0; s < segments; ++s) {
        const Array initial(Dtype::fp64, {kHeads, 3, 5}), dfinal(Dtype::fp64, {kHeads, 3, 5});
        on_queue([&](Queue& q) {
          ssd_enter_state(q, kShape, left, seq_idx, segments, s, initial);
          ssd_enter_adjoint(q, kShape, right, seq_idx, segments, s, dfinal);
        });
        const Segment& part = parts[s];
        append(y, part.forward(initial));
        const Gradients g = part.backward(initial, dfinal);
        for (Values Gradients::*tokens :
             {&Gradients::dx, &Gradients::ddt, &Gradients::db, &Gradients::dc})
          append(sum.*tokens, g.*tokens);
        for (Values Gradients::*summed : {&Gradients::da_log, &Gradients::dd, &Gradients::ddt_bias})
          add(sum.*summed, g.*summed);
      }
      EXPECT_LT(relative_error(y, whole.forward({})), 1e-13);
      const Gradients expected = whole.backward({}, {});
      for (Values Gradients::*gradient :
           {&Gradients::dx, &Gradients::ddt, &Gradients::db, &Gradients::dc, &Gradients::da_log,
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
    const Inputs in(random, total);
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
    const Array seq_idx = packed.seq_idx();
    for (std::int64_t s = 0; s < segments; ++s) {
      const Array initial(Dtype::fp64, {kHeads, 3, 5}), dfinal(Dtype::fp64, {kHeads, 3, 5});
      on_queue([&](Queue& q) {
        ssd_enter_state(q, kShape, left, seq_idx, segments, s, initial);
        ssd_enter_adjoint(q, kShape, right, seq_idx, segments, s, dfinal);
      });
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
  const std::int64_t n = packed.tokens;
  const Inputs in(random, n);
  for (const Dtype storage : kFloatingTypes) {
    const auto array = [&](const Values& values, std::int64_t width) {
      return Array(storage, {n, width}, rounded(values, storage));
    };
    const Array x = array(in.x, kInner), dt = array(in.dt, kHeads), b = array(in.b, kShared);
    const Array c = array(in.c, kShared), a_log(storage, {kHeads}, in.a_log);
    const Array d(storage, {kHeads}, in.d), dt_bias(storage, {kHeads}, in.dt_bias);
    const Array seq_idx = packed.seq_idx(), y(storage, {n, kInner});
    const Dtype sums = execution::accumulation(storage);
    const Array state(sums, {kHeads, 3, 5}), decay(sums, {kHeads});
    const Array left(sums, {ssd_segment_elements(kShape)});
    const Array room = workspace(ssd_forward_workspace_bytes(kShape, n, storage));
    const SsdInputOperands operands{.x = all_columns(x),
                                    .dt = all_columns(dt),
                                    .b = all_columns(b),
                                    .c = all_columns(c),
                                    .a_log = a_log,
                                    .d = d,
                                    .dt_bias = dt_bias,
                                    .seq_idx = seq_idx};
    on_queue([&](Queue& q) {
      ssd_forward(q, kShape, {.inputs = operands, .y = y, .workspace = room},
                  {.initial_state = {}, .final_state = state, .total_decay = decay});
      ssd_segment_state(q, kShape, operands, left);
    });
    Values expected = state.values();
    append(expected, decay.values());
    EXPECT_LT(relative_error(left.values(), expected), tolerance(sums, 60, 8));
  }
}

TEST(ssd_segment, wrong_operands_are_named) {
  const Array all(Dtype::fp32, {3}), seq_idx = int32_array({0, 0}), state(Dtype::fp32, {4, 3, 5});
  try {
    on_queue([&](Queue& q) { ssd_enter_state(q, kShape, all, seq_idx, 2, 0, state); });
    FAIL() << "three elements were taken for two segments";
  } catch (const execution::Error& error) {
    EXPECT_NE(std::string(error.what()).find("ssd_enter_state"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace stowage::kernels::test
