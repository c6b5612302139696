#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "ctest/kernels/adamw_piece.hpp"
#include "ctest/kernels/operator_arrays.hpp"
#include "ctest/kernels/packed.hpp"
#include "execution/error.hpp"
#include "kernels/optimizer/adamw.hpp"
#include "kernels/optimizer/ema.hpp"
#include "kernels/optimizer/global_norm.hpp"
#include "kernels/optimizer/keep_weights.hpp"

namespace stowage::kernels::test {
namespace {

struct Norm {
  double norm;
  std::int32_t step_ok;
  std::vector<double> partials;
};

// A tensor is cut behind each of `cuts` (blocks of the tensor, ascending); pieces run in any order.
Norm norm_of(Dtype dtype, const std::vector<Values>& gradients, std::int32_t step_ok = 1,
             const std::vector<std::int64_t>& cuts = {}) {
  NormPartials op{.pieces = {}, .slots = 0, .storage = dtype};
  std::vector<Array> arrays;
  for (const Values& values : gradients) {
    const auto size = static_cast<std::int64_t>(values.size());
    std::int64_t first = 0;
    const auto cut_at = [&](std::int64_t end) {
      if (end <= first && size > 0) return;
      const Values part(values.begin() + first, values.begin() + end);
      arrays.emplace_back(dtype, std::vector{end - first}, part);
      op.pieces.push_back({.first = first, .elements = end - first, .slot = op.slots});
      first = end;
    };
    for (const std::int64_t cut : cuts)
      if (cut * kNormBlock < size) cut_at(cut * kNormBlock);
    cut_at(size);
    op.slots += norm_blocks(size);
  }
  std::ranges::reverse(op.pieces);
  std::ranges::reverse(arrays);
  const Array norm(dtype, {1}), ok = int32_array({step_ok}), partials(Dtype::fp64, {op.slots});
  Arrays<NormPartials> o{.partials = partials, .gradients = {}};
  for (const Array& gradient : arrays) o.gradients.push_back({gradient});
  test::run(op, o);
  test::run(NormFinish{op.slots, dtype}, {.partials = partials, .norm = norm, .step_ok = ok});
  return {norm.values()[0], ok.as<std::int32_t>()[0], partials.values()};
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

TEST(optimizer, global_norm_does_not_depend_on_cuts) {
  Random random;
  for (const Dtype dtype : {Dtype::fp64, Dtype::fp32}) {
    std::vector<Values> gradients;
    for (const std::int64_t count : {5, 2048, 100000, 0, 2049, 30 * 2048})
      gradients.push_back(rounded(random.normal(count), dtype));
    const Norm whole = norm_of(dtype, gradients);
    ASSERT_EQ(whole.partials.size(), 1 + 1 + 49 + 2 + 30);
    for (const std::vector<std::int64_t>& cuts :
         {std::vector<std::int64_t>{1}, {1, 2, 3}, {7, 20, 21}, {29, 48}}) {
      const Norm cut = norm_of(dtype, gradients, 1, cuts);
      EXPECT_EQ(cut.norm, whole.norm);
      EXPECT_EQ(cut.partials, whole.partials);
    }
  }
}

// More slots than terms of the sum over slots.
TEST(optimizer, global_norm_of_many_slots) {
  Random random;
  const Values values = random.uniform(3 * kSlotTerms + 77, 0, 1);
  double sum = 0;
  for (const double value : values) sum += value;
  const Array partials(Dtype::fp64, {static_cast<std::int64_t>(values.size())}, values);
  const Array norm(Dtype::fp64, {1});
  test::run(NormFinish{static_cast<std::int64_t>(values.size()), Dtype::fp64},
            {.partials = partials, .norm = norm, .step_ok = int32_array({1})});
  EXPECT_NEAR(norm.values()[0], std::sqrt(sum), std::sqrt(sum) * tolerance(Dtype::fp64, 30000));
}

void run_piece(const NormPartials::Piece& piece, const Array& gradient, const Array& partials) {
  Arrays<NormPartials> o{.partials = partials, .gradients = {}};
  o.gradients.push_back({gradient});
  const auto slots = static_cast<std::int64_t>(partials.size());
  test::run(NormPartials{{piece}, slots, gradient.dtype(), true}, o);
}

// A rank sums its own part of a tensor into slots of its own; the others keep what they have.
TEST(optimizer, norm_partials_keep_to_their_piece) {
  Random random;
  const Values values = random.normal(kNormBlock + 1);
  const Array gradient(Dtype::fp64, {kNormBlock + 1}, values);
  const Array partials(Dtype::fp64, {6}, Values{9, 9, 9, 9, 9, 9});
  run_piece({.first = 3 * kNormBlock, .elements = kNormBlock + 1, .slot = 1}, gradient, partials);
  Values expected(6, 9);
  const Values first(values.begin(), values.begin() + kNormBlock);
  const Values all = partials.values();
  EXPECT_NEAR(all[4], dot(first, first), 1e-10 * kNormBlock);
  EXPECT_EQ(all[5], values[kNormBlock] * values[kNormBlock]);
  expected[4] = all[4], expected[5] = all[5];
  EXPECT_EQ(all, expected);
}

TEST(optimizer, what_is_left_out_of_the_norm_counts_as_zero) {
  Random random;
  const std::int64_t count = 4 * kNormBlock + 5, first = 2 * kNormBlock;
  for (const execution::Range out : {execution::Range{first, first + count},
                                     {0, first + 3},
                                     {first + 100, first + kNormBlock + 7},
                                     {first + count - 1, first + 2 * count},
                                     {3, 9}}) {
    Values values = random.normal(count);
    const Array gradient(Dtype::fp32, {count}, values);
    for (std::int64_t i = 0; i < count; ++i)
      if (out.begin <= first + i && first + i < out.end) values[i] = 0;
    const Array cleared(Dtype::fp32, {count}, values);
    const Array partials(Dtype::fp64, {7}, Values(7, 1)), expected(Dtype::fp64, {7}, Values(7, 1));
    run_piece({first, count, 0, out}, gradient, partials);
    run_piece({first, count, 0}, cleared, expected);
    EXPECT_EQ(partials.values(), expected.values()) << out.begin << " to " << out.end;
  }
}

TEST(optimizer, norm_partials_refuse_what_is_no_piece) {
  const Array gradient(Dtype::fp64, {2 * kNormBlock}), partials(Dtype::fp64, {3});
  const auto run = [&](std::int64_t first, std::int64_t elements, std::int64_t slot) {
    run_piece({first, elements, slot}, gradient, partials);
  };
  const std::int64_t whole = 2 * kNormBlock;
  EXPECT_THROW(run(1, whole, 0), execution::Error) << "begins inside a block";
  EXPECT_THROW(run(0, whole + 1, 0), execution::Error) << "more than the gradient holds";
  EXPECT_THROW(run(0, -1, 0), execution::Error) << "no number of elements";
  EXPECT_THROW(run(2 * kNormBlock, whole, 0), execution::Error) << "one slot too few";
  EXPECT_THROW(run(0, whole, -1), execution::Error) << "a slot before the first";
}

struct State {
  Values parameter, master, gradient, m, v;
  double decay = 0, lr = 1;  ///< factors
};

State random_state(Random& random, std::int64_t count, Dtype storage, double decay, double lr = 1) {
  const Dtype sums = execution::accumulation(storage);
  State state;
  state.master = rounded(random.normal(count), sums);
  state.parameter = rounded(state.master, storage);
  state.gradient = rounded(random.normal(count), sums);
  state.m = rounded(random.normal(count, 0.1), sums);
  state.v = rounded(random.uniform(count, 0, 0.1), sums);
  state.decay = decay;
  state.lr = lr;
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
    const double direction = m / (std::sqrt(v) + 1e-8) + state.decay * schedule[1] * old;
    state.master[i] -= state.lr * schedule[0] * direction;
  }
  state.parameter = state.master;
  return state;
}

// The tensors of one step, bound whole.
struct Tensors {
  Tensors(Dtype storage, const std::vector<State>& states, bool with_master,
          bool bf16_moments = false) {
    const Dtype sums = execution::accumulation(storage);
    const Dtype moments = bf16_moments ? Dtype::bf16 : sums;
    for (const State& s : states) {
      const auto n = static_cast<std::int64_t>(s.m.size());
      arrays.push_back({Array(storage, {n}, s.parameter),
                        with_master ? Array(sums, {n}, s.master) : Array(),
                        Array(sums, {n}, s.gradient), Array(moments, {n}, s.m),
                        Array(moments, {n}, s.v), s.decay, s.lr});
    }
    for (const OneState& a : arrays)
      whole.add({a.parameter.view(), a.master.view(), a.gradient.view(), a.m.view(), a.v.view()}, 0,
                static_cast<std::int64_t>(a.m.size()), a.decay, a.lr);
  }
  std::vector<State> states() const {
    std::vector<State> results;
    for (const OneState& a : arrays)
      results.push_back({a.parameter.values(), (a.master.view() ? a.master : a.parameter).values(),
                         a.gradient.values(), a.m.values(), a.v.values(), a.decay, a.lr});
    return results;
  }

  struct OneState {
    Array parameter, master, gradient, m, v;
    double decay, lr;
  };
  std::vector<OneState> arrays;
  AdamwParts whole;
};

// Runs one step on pieces of tensors of one storage dtype.
void run(Dtype storage, const AdamwParts& parts, std::int64_t good_steps, double clip,
         std::int32_t ok, const Values& rates = {kRate, kDecay}) {
  const Dtype sums = execution::accumulation(storage);
  const Array schedule(sums, {2}, rates), norm(sums, {1}, Values{kNorm});
  const Array step(Dtype::int64, {1}, Values{static_cast<double>(good_steps)});
  const Array step_ok = int32_array({ok});
  on_queue([&](Queue& q) {
    const bool has_master{parts.tensors[0].master.view};
    const Dtype m = parts.tensors[0].m.view.dtype(), v = parts.tensors[0].v.view.dtype();
    Adamw{parts.pieces, storage, has_master, clip, kOptions, m, v}.run(
        q, {schedule, step, norm, step_ok, parts.tensors});
    Advance{}.run(q, {.step = step, .step_ok = step_ok});
  });
  EXPECT_EQ(step.as<std::int64_t>()[0], good_steps + (ok != 0));
}

// The same on whole tensors of all kinds; returns their states.
std::vector<State> run(Dtype storage, const std::vector<State>& states, bool with_master,
                       std::int64_t good_steps, double clip, std::int32_t ok) {
  const Tensors tensors(storage, states, with_master);
  run(storage, tensors.whole, good_steps, clip, ok);
  return tensors.states();
}

TEST(optimizer, adamw_is_the_formula) {
  Random random;
  for (const Dtype storage : kFloatingTypes)
    for (const bool with_master : {true, false})
      for (const double clip : {0.0, 1.0, 10.0}) {
        std::vector<State> states;
        for (const auto& [count, decay, lr] :
             {std::tuple{1, 1.0, 1.0}, {9000, 1.0, 1.0}, {33, 0.0, 1.0}, {8200, 0.5, 0.25}})
          states.push_back(random_state(random, count, storage, decay, lr));
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

// Moments of bf16 are what the update makes, rounded behind it.
TEST(optimizer, adamw_rounds_moments_of_bf16_once) {
  Random random;
  for (const Dtype storage : kFloatingTypes)
    for (const std::int64_t count : {1, 9000}) {
      State state = random_state(random, count, storage, 1);
      for (Values* moment : {&state.m, &state.v}) *moment = rounded(*moment, Dtype::bf16);
      const State wide = run(storage, {state}, true, 3, 1, 1)[0];
      const Tensors tensors(storage, {state}, true, true);
      run(storage, tensors.whole, 3, 1, 1);
      const State result = tensors.states()[0];
      EXPECT_EQ(result.master, wide.master);
      EXPECT_EQ(result.parameter, wide.parameter);
      EXPECT_EQ(result.m, rounded(wide.m, Dtype::bf16));
      EXPECT_EQ(result.v, rounded(wide.v, Dtype::bf16));
    }
}

// By half, which is exact, of values that the stored parameter cannot hold.
TEST(optimizer, adamw_decays_the_master) {
  Random random;
  for (const Dtype storage : kFloatingTypes) {
    State state = random_state(random, 999, storage, 1);
    for (Values* none : {&state.gradient, &state.m, &state.v}) std::ranges::fill(*none, 0.0);
    const Tensors tensors(storage, {state}, true);
    run(storage, tensors.whole, 0, 0, 1, {1, 0.5});
    for (double& value : state.master) value /= 2;
    const State result = tensors.states()[0];
    EXPECT_EQ(result.master, state.master);
    EXPECT_EQ(result.parameter, rounded(state.master, storage));
  }
}

TEST(optimizer, adamw_does_not_depend_on_cuts) {
  Random random;
  const std::int64_t count = 9 * kNormBlock + 5;
  for (const Dtype storage : kFloatingTypes)
    for (const bool with_master : {true, false}) {
      const State state = random_state(random, count, storage, true);
      const State whole = run(storage, {state}, with_master, 4, 1, 1)[0];
      const Tensors cut(storage, {state}, with_master);
      AdamwParts pieces;
      std::int64_t first = 0;
      for (const std::int64_t end : {kNormBlock, 4 * kNormBlock, 9 * kNormBlock, count}) {
        pieces.add(cut.whole.tensors[0], first, end - first, true);
        first = end;
      }
      run(storage, pieces, 4, 1, 1);
      const State result = cut.states()[0];
      EXPECT_EQ(result.parameter, whole.parameter);
      EXPECT_EQ(result.master, whole.master);
      EXPECT_EQ(result.m, whole.m);
      EXPECT_EQ(result.v, whole.v);
    }
}

// What is another rank's, on either side, is neither read nor written.
TEST(optimizer, adamw_keeps_to_its_piece) {
  Random random;
  const State state = random_state(random, 3 * kNormBlock, Dtype::bf16, true);
  const State whole = run(Dtype::bf16, {state}, true, 4, 1, 1)[0];
  const Tensors tensors(Dtype::bf16, {state}, true);
  AdamwParts piece;
  piece.add(tensors.whole.tensors[0], kNormBlock, kNormBlock, true);
  run(Dtype::bf16, piece, 4, 1, 1);
  const State result = tensors.states()[0];
  const auto expect = [](const Values& actual, const Values& before, const Values& after) {
    Values expected = before;
    std::copy_n(after.begin() + kNormBlock, kNormBlock, expected.begin() + kNormBlock);
    EXPECT_EQ(actual, expected);
  };
  expect(result.parameter, state.parameter, whole.parameter);
  expect(result.master, state.master, whole.master);
  expect(result.m, state.m, whole.m);
  expect(result.v, state.v, whole.v);
}

TEST(optimizer, adamw_refuses_wrong_numbers_of_elements) {
  Random random;
  Tensors tensors(Dtype::fp32, {random_state(random, 10, Dtype::fp32, true)}, true);
  for (const std::int64_t elements : {9, 11, -1}) {
    tensors.whole.pieces[0].elements = elements;
    EXPECT_THROW(run(Dtype::fp32, tensors.whole, 0, 0, 1), execution::Error) << elements;
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

// Kept, changed, squared by block and added up by part: two tensors, one of them cut, some elements
// left out. Where the host has not asked, nothing is read or written.
TEST(optimizer, what_a_step_changes_is_squared_where_it_is_asked_for) {
  Random random;
  for (const Dtype storage : kFloatingTypes)
    for (const bool has_master : {false, true})
      for (const std::int32_t asked : {1, 0}) {
        const KeepWeights keep{.elements = {3 * kNormBlock, kNormBlock + 1, 7},
                               .storage = storage,
                               .has_master = has_master};
        const ChangePartials op{
            .pieces = {{.elements = 3 * kNormBlock, .slot = 1},
                       {.first = 3 * kNormBlock, .elements = kNormBlock + 1, .slot = 1},
                       {.elements = 7, .slot = 6, .left_out = {2, 4}}},
            .slots = 8,
            .storage = storage,
            .has_master = has_master};
        Arrays<KeepWeights> kept = make_arrays(keep, random);
        kept.asked = int32_array({asked});
        Arrays<ChangePartials> o = make_arrays(op, random);
        o.asked = kept.asked;
        o.partials = Array(Dtype::fp64, {8}, Values(8, 9));
        test::run(keep, kept);
        double squares[2] = {};
        for (std::size_t i = 0; i < 3; ++i) {
          const Array& weight = kept.tensors[i].weight;
          const Values before = weight.values();
          if (asked != 0) {
            EXPECT_EQ(kept.tensors[i].kept.values(), before);
          }
          set(weight,
              rounded(random.normal(static_cast<std::int64_t>(before.size())), weight.dtype()));
          o.tensors[i] = {.weight = weight, .before = kept.tensors[i].kept};
          const Values after = weight.values();
          for (std::size_t j = 0; j < after.size(); ++j) {
            if (i == 2 && (j == 2 || j == 3)) continue;
            squares[i / 2] += (after[j] - before[j]) * (after[j] - before[j]);
          }
        }
        test::run(op, o);
        const Values partials = o.partials.values();
        if (asked == 0) {
          EXPECT_EQ(partials, Values(8, 9));
          continue;
        }
        EXPECT_EQ(partials[0], 9);
        EXPECT_EQ(partials[7], 9);
        const PartSums sums{.parts = {{1, 6}, {3, 3}, {6, 7}}, .slots = 8, .storage = storage};
        const Arrays<PartSums> parts = {.partials = o.partials, .sums = Array(Dtype::fp64, {3})};
        test::run(sums, parts);
        // A difference is rounded once, in the type of sums; sums are of some thousand squares.
        const double bound = 4 * execution::epsilon(execution::accumulation(storage)) +
                             tolerance(Dtype::fp64, 4 * kNormBlock + 1);
        const Values found = parts.sums.values();
        EXPECT_NEAR(found[0], squares[0], squares[0] * bound);
        EXPECT_EQ(found[1], 0);
        EXPECT_NEAR(found[2], squares[1], squares[1] * bound);
      }
  const PartSums outside{.parts = {{1, 9}}, .slots = 8, .storage = Dtype::fp64};
  EXPECT_THROW(test::run(outside, make_arrays(outside, random)), execution::Error);
}

TEST(optimizer, an_average_is_the_formula) {
  Random random;
  for (const Dtype storage : kFloatingTypes)
    for (const bool has_master : {false, true})
      for (const std::int32_t ok : {1, 0}) {
        const Ema op{
            .elements = {7, 3001}, .storage = storage, .has_master = has_master, .decay = 0.75};
        Arrays<Ema> o = make_arrays(op, random);
        o.step_ok = int32_array({ok});
        std::vector<Values> expected;
        for (int i = 0; i < 2; ++i) {
          const Values weight = o.tensors[i].weight.values();
          expected.push_back(o.tensors[i].ema.values());
          for (std::size_t j = 0; ok != 0 && j < weight.size(); ++j)
            expected.back()[j] += 0.25 * (weight[j] - expected.back()[j]);
        }
        test::run(op, o);
        for (int i = 0; i < 2; ++i)
          EXPECT_LE(relative_error(o.tensors[i].ema.values(), expected[i]),
                    ok * 4 * execution::epsilon(execution::accumulation(storage)));
      }
}

TEST(optimizer, an_average_and_weights_change_places) {
  Random random;
  for (const Dtype storage : kFloatingTypes) {
    const ExchangeEma op{.elements = {5, 2049},
                         .storage = storage,
                         .has_master = execution::accumulation(storage) != storage};
    const Arrays<ExchangeEma> o = make_arrays(op, random);
    const auto& one = o.tensors[1];
    const Array& kept = op.has_master ? one.master : one.parameter;
    const Values weight = kept.values(), average = one.ema.values();
    test::run(op, o);
    EXPECT_EQ(one.ema.values(), weight);
    EXPECT_EQ(kept.values(), average);
    EXPECT_EQ(one.parameter.values(), rounded(average, storage));
    test::run(op, o);
    EXPECT_EQ(one.ema.values(), average);
    EXPECT_EQ(kept.values(), weight);
    EXPECT_EQ(one.parameter.values(), rounded(weight, storage));
  }
  const ExchangeEma none{.elements = {5}, .storage = Dtype::bf16, .has_master = false};
  EXPECT_THROW(test::run(none, make_arrays(none, random)), execution::Error);
}

}  // namespace
}  // namespace stowage::kernels::test
