#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "ctest/kernels/packed.hpp"
#include "ctest/kernels/support.hpp"
#include "kernels/optimizer/adamw.hpp"
#include "kernels/optimizer/global_norm.hpp"

namespace stowage::kernels::test {
namespace {

struct Norm {
  double norm;
  std::int32_t step_ok;
};

/// The norm of gradients in pieces of at most `most` elements, a multiple of kNormBlock; 0: whole.
Norm norm_of(Dtype dtype, const std::vector<Values>& gradients, std::int32_t step_ok = 1,
             std::int64_t most = 0) {
  std::vector<Array> arrays;
  std::vector<NormPiece> pieces;
  std::int64_t blocks = 0;
  for (const Values& values : gradients) {
    const auto count = static_cast<std::int64_t>(values.size());
    const std::int64_t length = most > 0 ? most : std::max<std::int64_t>(count, 1);
    for (std::int64_t begin = 0; begin < count; begin += length) {
      const auto from = values.begin() + begin;
      const std::int64_t elements = std::min(length, count - begin);
      arrays.emplace_back(dtype, std::vector{elements}, Values(from, from + elements));
      pieces.push_back({{}, begin, blocks});
    }
    blocks += norm_blocks(count);
  }
  for (std::size_t i = 0; i < pieces.size(); ++i) pieces[i].gradient = arrays[i];
  std::reverse(pieces.begin(), pieces.end());  // in any order
  const Array norm(dtype, {1}), ok = int32_array({step_ok}), partials(Dtype::fp64, {blocks});
  const Array room = workspace(norm_finish_workspace_bytes(blocks));
  on_queue([&](Queue& q) {
    norm_partials(q, pieces, partials);
    norm_finish(q, partials, norm, ok, room);
  });
  return {norm.values()[0], ok.as<std::int32_t>()[0]};
}

TEST(optimizer, global_norm_has_the_same_bits_in_any_pieces) {
  Random random;
  for (const Dtype dtype : {Dtype::fp64, Dtype::fp32}) {
    std::vector<Values> gradients;
    for (const std::int64_t count : {1, 40000, 2048, 2049, 7})
      gradients.push_back(rounded(random.normal(count), dtype));
    const double whole = norm_of(dtype, gradients).norm;
    for (const std::int64_t blocks : {1, 2, 7, 19})
      EXPECT_EQ(norm_of(dtype, gradients, 1, blocks * kNormBlock).norm, whole) << blocks;
  }
}

TEST(optimizer, global_norm_is_the_formula) {
  Random random;
  for (const Dtype dtype : {Dtype::fp64, Dtype::fp32}) {
    std::vector<Values> gradients;
    double squares = 0;
    for (const std::int64_t count : {1, 40000, 16384, 7}) {
      gradients.push_back(rounded(random.normal(count), dtype));
      squares += dot(gradients.back(), gradients.back());
    }
    const Norm result = norm_of(dtype, gradients);
    EXPECT_NEAR(result.norm, std::sqrt(squares), std::sqrt(squares) * tolerance(dtype, 56408));
    EXPECT_EQ(result.step_ok, 1);
  }
}

TEST(optimizer, global_norm_guards_the_step) {
  const double huge = 3e38;
  EXPECT_EQ(norm_of(Dtype::fp32, {{1, 2}, {huge}}).step_ok, 1) << "squares are summed in fp64";
  EXPECT_EQ(norm_of(Dtype::fp32, {{1, 2}, {huge, huge}}).step_ok, 0);
  EXPECT_EQ(norm_of(Dtype::fp32, {{1}, {std::nan(""), 2}}).step_ok, 0);
  EXPECT_EQ(norm_of(Dtype::fp64, {{-std::numeric_limits<double>::infinity()}}).step_ok, 0);
  EXPECT_EQ(norm_of(Dtype::fp32, {{1}}, 0).step_ok, 0) << "a good norm does not mend a bad step";
}

struct State {
  Values parameter, master, gradient, m, v;
  bool decay = false;
};

State random_state(Random& random, std::int64_t count, Dtype storage, bool decay) {
  const Dtype sums = execution::accumulation(storage);
  State state;
  state.master = rounded(random.normal(count), sums);
  state.parameter = rounded(state.master, storage);
  state.gradient = rounded(random.normal(count), sums);
  state.m = rounded(random.normal(count, 0.1), sums);
  state.v = rounded(random.uniform(count, 0, 0.1), sums);
  state.decay = decay;
  return state;
}

constexpr double kRate = 0.01, kDecay = 0.1, kNorm = 3.5;
constexpr AdamwOptions kOptions{0.9, 0.95, 1e-8};

// In fp64, from the paper: moments, their corrections, the step and the decay.
State plain_step(State state, std::int64_t good_steps, double clip, const Values& schedule,
                 double norm) {
  const double factor = clip > 0 ? std::min(1.0, clip / (norm + 1e-6)) : 1;
  const auto s = static_cast<double>(good_steps + 1);
  for (std::size_t i = 0; i < state.m.size(); ++i) {
    const double g = state.gradient[i] * factor;
    state.m[i] = 0.9 * state.m[i] + 0.1 * g;
    state.v[i] = 0.95 * state.v[i] + 0.05 * g * g;
    const double m = state.m[i] / (1 - std::pow(0.9, s)), v = state.v[i] / (1 - std::pow(0.95, s));
    const double old = state.master[i];
    state.master[i] -= schedule[0] * m / (std::sqrt(v) + 1e-8);
    if (state.decay) state.master[i] -= schedule[0] * schedule[1] * old;
  }
  state.parameter = state.master;
  return state;
}

// Runs one step on tensors of all kinds; returns their states.
std::vector<State> run(Dtype storage, const std::vector<State>& states, bool with_master,
                       std::int64_t good_steps, double clip, std::int32_t ok) {
  const Dtype sums = execution::accumulation(storage);
  struct Arrays {
    Array parameter, master, gradient, m, v;
  };
  std::vector<Arrays> arrays;
  std::vector<AdamwTensor> tensors;
  for (const State& s : states) {
    const auto n = static_cast<std::int64_t>(s.m.size());
    arrays.push_back({Array(storage, {n}, s.parameter),
                      with_master ? Array(sums, {n}, s.master) : Array(),
                      Array(sums, {n}, s.gradient), Array(sums, {n}, s.m), Array(sums, {n}, s.v)});
  }
  for (std::size_t i = 0; i < states.size(); ++i)
    tensors.push_back({arrays[i].parameter, arrays[i].master, arrays[i].gradient, arrays[i].m,
                       arrays[i].v, states[i].decay});
  const Array schedule(sums, {2}, Values{kRate, kDecay}), norm(sums, {1}, Values{kNorm});
  const Array step(Dtype::int64, {1}, Values{static_cast<double>(good_steps)});
  const Array step_ok = int32_array({ok});
  on_queue([&](Queue& q) {
    adamw(q, tensors, schedule, step, norm, clip, step_ok, kOptions);
    advance(q, step, step_ok);
  });
  EXPECT_EQ(step.as<std::int64_t>()[0], good_steps + (ok != 0));
  std::vector<State> results;
  for (std::size_t i = 0; i < states.size(); ++i)
    results.push_back({arrays[i].parameter.values(),
                       with_master ? arrays[i].master.values() : arrays[i].parameter.values(),
                       arrays[i].gradient.values(), arrays[i].m.values(), arrays[i].v.values(),
                       states[i].decay});
  return results;
}

TEST(optimizer, adamw_is_the_formula) {
  Random random;
  for (const Dtype storage : kFloatingTypes)
    for (const bool with_master : {true, false})
      for (const double clip : {0.0, 1.0, 10.0}) {
        std::vector<State> states;
        for (const std::int64_t count : {1, 9000, 33})
          states.push_back(random_state(random, count, storage, count != 33));
        if (!with_master)
          for (State& state : states) state.master = state.parameter;
        const std::int64_t good_steps = random.integer(0, 20);
        const std::vector<State> results = run(storage, states, with_master, good_steps, clip, 1);
        const Dtype sums = execution::accumulation(storage);
        for (std::size_t i = 0; i < states.size(); ++i) {
          const State expected =
              plain_step(states[i], good_steps, clip, rounded({kRate, kDecay}, sums), kNorm);
          // beta is rounded too, and 1 - beta is 20 times smaller: 20 epsilon on the moments.
          const double close = 64 * execution::epsilon(sums);
          EXPECT_LT(rms_difference(results[i].m, expected.m), close);
          EXPECT_LT(relative_error(results[i].v, expected.v), close);
          EXPECT_LT(rms_difference(results[i].master, expected.master),
                    close + (with_master ? 0 : 4 * execution::epsilon(storage)));
          EXPECT_EQ(results[i].parameter, rounded(results[i].master, storage));
          EXPECT_EQ(results[i].gradient, states[i].gradient);
        }
      }
}

TEST(optimizer, a_bad_step_changes_nothing) {
  Random random;
  State state = random_state(random, 100, Dtype::bf16, true);
  state.gradient[7] = std::numeric_limits<double>::infinity();
  const State result = run(Dtype::bf16, {state}, true, 3, 1, 0)[0];
  EXPECT_EQ(result.parameter, state.parameter);
  EXPECT_EQ(result.master, state.master);
  EXPECT_EQ(result.m, state.m);
  EXPECT_EQ(result.v, state.v);
}

// The first step from zero moments goes by the learning rate against each gradient's sign.
TEST(optimizer, first_step_is_the_sign) {
  State state{{1, 1}, {1, 1}, {1e-3, -2e4}, {0, 0}, {0, 0}, false};
  const State result = run(Dtype::fp64, {state}, true, 0, 0, 1)[0];
  EXPECT_NEAR(result.master[0], 1 - kRate, 1e-6);
  EXPECT_NEAR(result.master[1], 1 + kRate, 1e-6);
}

}  // namespace
}  // namespace stowage::kernels::test
