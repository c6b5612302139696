// Adamw without masters: first moments of e4m3 in units of the root of the second, second ones and
// parameters of bf16, all rounded stochastically.
#include <cmath>
#include <map>

#include "adamw_piece.hpp"
#include "execution/fp8.hpp"
#include "kernels/optimizer/round_sum.hpp"
#include "kernels/optimizer/stochastic_rounding.hpp"

namespace stowage::kernels::test {
namespace {

using execution::Bf16;
using execution::E4m3;
using execution::GlobalIndex;

constexpr double kRate = 0.01, kDecay = 0.1;
constexpr AdamwOptions kOptions{0.9, 0.95, 1e-8};

double from_bf16(std::uint16_t bits) {
  Bf16 value;
  value.bits = bits;
  return static_cast<double>(value);
}

TEST(rounded_states, all_random_bits_together_give_the_value) {
  Random random;
  for (const double scale : {1.0, 1e-20, 1e-39, 3e4})
    for (const double drawn : random.normal(20, scale)) {
      const auto value = static_cast<float>(drawn);
      double sum = 0;
      for (std::uint32_t bits = 0; bits < 1U << 16; ++bits)
        sum += from_bf16(round_to_bf16(value, bits));
      EXPECT_EQ(sum / 0x1p16, static_cast<double>(value));
    }
  for (const double scale : {1.0, 100.0})
    for (const double drawn : random.normal(4, scale)) {
      const auto value = static_cast<float>(drawn);
      if (std::abs(value) < 0x1p-6F || std::abs(value) > 448) continue;
      double sum = 0;
      for (std::uint32_t bits = 0; bits < 1U << 20; ++bits)
        sum += static_cast<double>(from_e4m3(round_to_e4m3(value, bits)));
      EXPECT_EQ(sum / 0x1p20, static_cast<double>(value));
    }
  double sum = 0;  // between subnormal values, of 23 bits
  constexpr float kSmall = 0x1.4p-8F;
  for (std::uint32_t bits = 0; bits < 1U << 20; ++bits)
    sum += static_cast<double>(from_e4m3(round_to_e4m3(-kSmall, bits)));
  EXPECT_EQ(sum / 0x1p20, -static_cast<double>(kSmall));
}

TEST(rounded_states, what_a_type_holds_stays_as_it_is) {
  for (std::uint32_t code = 0; code < 256; ++code) {
    E4m3 expected;
    expected.bits = static_cast<std::uint8_t>(code);
    const auto value = static_cast<float>(expected);
    if (std::isnan(value)) continue;
    EXPECT_EQ(from_e4m3(expected.bits), value);
    for (const std::uint32_t bits : {0U, 12345U, (1U << 20) - 1})
      EXPECT_EQ(round_to_e4m3(value, bits), code);
  }
  for (const float value : {0.0F, 1.0F, -3.5F, 0x1p-130F, HUGE_VALF})
    for (const std::uint32_t bits : {0U, 777U, 0xffffU})
      EXPECT_EQ(from_bf16(round_to_bf16(value, bits)), static_cast<double>(value));
  for (const float value : {1e4F, HUGE_VALF}) EXPECT_EQ(round_to_e4m3(value, 0xfffff), 0x7e);
  EXPECT_EQ(round_to_e4m3(-1e4F, 0), 0xfe);
  const float nan = std::bit_cast<float>(0x7fffffffU);
  EXPECT_TRUE(std::isnan(from_bf16(round_to_bf16(nan, 0xffff))));
  EXPECT_EQ(round_to_e4m3(nan, 0), 0x7f);
}

// The numbers below are of this very counter: another one would change runs that go on.
TEST(rounded_states, bits_are_those_of_the_counter_in_any_order) {
  const std::uint64_t key = RoundingStream::key(5, 3);
  const std::uint64_t stream = execution::stream_of("embedding.weight");
  const auto bits_of = [&](std::int64_t element) { return RoundingStream(key, stream)(element); };
  RoundingStream backwards(key, stream);
  for (std::int64_t element = 9; element >= 0; --element) {
    const execution::PhiloxBlock block =
        execution::philox(key, stream, static_cast<std::uint64_t>(element / 2));
    const RoundingBits bits = backwards(element);
    const std::uint32_t low = block.word[element % 2 * 2], high = block.word[element % 2 * 2 + 1];
    EXPECT_EQ(bits.parameter, low & 0xffff);
    EXPECT_EQ(bits.v, low >> 16);
    EXPECT_EQ(bits.m, high >> 12);
    EXPECT_EQ(bits_of(element).m, bits.m);
  }
  EXPECT_NE(RoundingStream::key(5, 4), key);
  EXPECT_NE(RoundingStream::key(6, 3), key);
  EXPECT_EQ(bits_of(0).parameter, 44396U);
  EXPECT_EQ(bits_of(1).m, 412503U);
  EXPECT_EQ(bits_of((std::int64_t{1} << 40) + 1).v, 25937U);
}

// A parameter with its states, as values: the first moment itself, not what is stored of it.
struct State {
  Values parameter, gradient, m, v;
};

State random_state(Random& random, std::int64_t count, Dtype storage) {
  const Dtype sums = execution::accumulation(storage);
  State state{rounded(random.normal(count), storage), rounded(random.normal(count), sums), {}, {}};
  state.v = rounded(random.uniform(count, 0.001, 0.1), Dtype::bf16);
  const Values ratios = rounded(random.normal(count, 8), Dtype::e4m3);
  for (std::size_t i = 0; i < ratios.size(); ++i)
    state.m.push_back(ratios[i] / kMomentScale * std::sqrt(state.v[i]));
  return state;
}

// In fp64, from the paper.
State plain_step(State state, std::int64_t good_steps) {
  const auto s = static_cast<double>(good_steps + 1);
  for (std::size_t i = 0; i < state.m.size(); ++i) {
    const double g = state.gradient[i];
    state.m[i] = 0.9 * state.m[i] + 0.1 * g;
    state.v[i] = 0.95 * state.v[i] + 0.05 * g * g;
    const double m = state.m[i] / (1 - std::pow(0.9, s)), v = state.v[i] / (1 - std::pow(0.95, s));
    state.parameter[i] -= kRate * (m / (std::sqrt(v) + 1e-8) + kDecay * state.parameter[i]);
  }
  return state;
}

// The tensors of a step.
struct Tensors {
  Tensors(Dtype storage_type, const State& state)
      : storage(storage_type),
        count(static_cast<std::int64_t>(state.m.size())),
        parameter(storage, {count}, state.parameter),
        gradient(execution::accumulation(storage), {count}, state.gradient),
        v(Dtype::bf16, {count}, state.v) {
    Values ratios;
    for (std::size_t i = 0; i < state.m.size(); ++i)
      ratios.push_back(state.v[i] > 0 ? state.m[i] * kMomentScale / std::sqrt(state.v[i]) : 0);
    m = Array(Dtype::e4m3, {count}, ratios);
  }

  Adamw::Tensors<View> views() const {
    return {parameter.view(), View(), gradient.view(), m.view(), v.view()};
  }
  State state() const {
    State all{parameter.values(), gradient.values(), m.values(), v.values()};
    for (std::size_t i = 0; i < all.m.size(); ++i) all.m[i] *= std::sqrt(all.v[i]) / kMomentScale;
    return all;
  }
  void run(const AdamwParts& parts, std::int64_t good_steps, std::uint64_t seed,
           const Values& rates = {kRate, kDecay}) const {
    const Dtype sums = execution::accumulation(storage);
    const Array schedule(sums, {2}, rates), norm(sums, {1}, Values{1});
    const Array step(Dtype::int64, {1}, Values{static_cast<double>(good_steps)});
    on_queue([&](Queue& q) {
      Adamw{parts.pieces, storage, false, 0, kOptions, Dtype::e4m3, Dtype::bf16, seed}.run(
          q, {schedule, step, norm, int32_array({1}), parts.tensors});
    });
  }
  void run(std::int64_t good_steps, std::uint64_t seed) const {
    AdamwParts whole;
    whole.add(views(), 0, count, 1);
    run(whole, good_steps, seed);
  }
  std::vector<Values> stored() const { return {parameter.values(), m.values(), v.values()}; }

  Dtype storage;
  std::int64_t count;
  Array parameter, gradient, v, m;
};

// Every element is a neighbour of what fp64 makes of it.
TEST(rounded_states, adamw_is_the_formula) {
  Random random;
  for (const Dtype storage : kFloatingTypes)
    for (const std::int64_t count : {1, 9001}) {
      const State before = random_state(random, count, storage);
      const Tensors tensors(storage, before);
      const std::int64_t good_steps = random.integer(0, 20);
      tensors.run(good_steps, 1);
      const State result = tensors.state(), expected = plain_step(before, good_steps);
      const double close = 64 * execution::epsilon(execution::accumulation(storage));
      for (std::size_t i = 0; i < result.m.size(); ++i) {
        const double of_v = 2 * execution::epsilon(Dtype::bf16);
        EXPECT_NEAR(result.v[i], expected.v[i], expected.v[i] * of_v);
        const double root = std::sqrt(result.v[i]);
        EXPECT_NEAR(result.m[i], expected.m[i],
                    std::abs(expected.m[i]) * 2 * execution::epsilon(Dtype::e4m3) +
                        root * 0x1p-9 / kMomentScale + close);
        const double step = storage == Dtype::bf16 ? 2 * execution::epsilon(storage) : 0;
        EXPECT_NEAR(result.parameter[i], expected.parameter[i],
                    std::abs(expected.parameter[i]) * step + close);
      }
    }
}

// The mean over seeds is what fp64 makes of it, within four deviations.
TEST(rounded_states, adamw_is_the_formula_on_average) {
  Random random;
  constexpr int kSeeds = 2000;
  const State before = random_state(random, 64, Dtype::bf16);
  State sum{Values(64), {}, Values(64), Values(64)};
  for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
    const Tensors tensors(Dtype::bf16, before);
    tensors.run(4, seed);
    const State result = tensors.state();
    for (const auto of : {&State::parameter, &State::m, &State::v})
      for (std::size_t i = 0; i < 64; ++i) (sum.*of)[i] += (result.*of)[i];
  }
  const State expected = plain_step(before, 4);
  // Half a step is the largest deviation of one rounding.
  const double deviations = 4 / std::sqrt(kSeeds);
  const auto expect = [&](Values State::*of, double step, double least) {
    for (std::size_t i = 0; i < 64; ++i)
      EXPECT_NEAR((sum.*of)[i] / kSeeds, (expected.*of)[i],
                  deviations * std::max(step * std::abs((expected.*of)[i]), least) + 1e-6);
  };
  expect(&State::parameter, execution::epsilon(Dtype::bf16), 0);
  expect(&State::v, execution::epsilon(Dtype::bf16), 0);
  // Of m, in units of a root that is at most sqrt(0.1 + 0.05 * 25).
  expect(&State::m, execution::epsilon(Dtype::e4m3), 1.2 * 0x1p-10 / kMomentScale);
}

// Updates of a hundredth of a unit of bf16, which rounding to nearest would lose.
TEST(rounded_states, small_updates_are_not_lost) {
  constexpr std::int64_t kCount = 4096;
  constexpr int kSteps = 200;
  constexpr double kSmall = 0x1p-8 / 100;
  const Tensors tensors(
      Dtype::bf16, {Values(kCount, 1.5), Values(kCount, 1), Values(kCount, 1), Values(kCount, 1)});
  AdamwParts whole;
  whole.add(tensors.views(), 0, kCount, 0);
  for (int step = 0; step < kSteps; ++step) tensors.run(whole, 1000 + step, 3, {kSmall, 0});
  double mean = 0;
  for (const double value : tensors.parameter.values()) mean += (1.5 - value) / kCount;
  EXPECT_NEAR(mean, kSteps * kSmall, 0.02 * kSteps * kSmall);
}

// Pieces, and columns of a matrix, have the bits of the whole.
TEST(rounded_states, no_cut_changes_a_bit) {
  Random random;
  constexpr std::int64_t kRows = 31, kColumns = 39, kCount = kRows * kColumns;
  const State before = random_state(random, kCount, Dtype::bf16);
  const Tensors whole(Dtype::bf16, before);
  whole.run(2, 9);
  for (const std::int64_t most : {1, 7, 640}) {
    const Tensors cut(Dtype::bf16, before);
    AdamwParts parts;
    for (std::int64_t first = 0; first < kCount; first += most)
      parts.add(cut.views(), first, std::min(most, kCount - first), 1);
    cut.run(parts, 2, 9);
    EXPECT_EQ(cut.stored(), whole.stored()) << "pieces of " << most;
  }
  constexpr std::int64_t kFirst = 5, kHeld = 18;
  const auto held = [](const Values& all) {
    Values some;
    for (std::int64_t row = 0; row < kRows; ++row)
      for (std::int64_t column = kFirst; column < kFirst + kHeld; ++column)
        some.push_back(all[static_cast<std::size_t>(row * kColumns + column)]);
    return some;
  };
  const Tensors part(
      Dtype::bf16, {held(before.parameter), held(before.gradient), held(before.m), held(before.v)});
  AdamwParts parts;
  parts.add(part.views(), 0, kRows * kHeld, 1);
  GlobalIndex& index = parts.pieces.front().index;
  index.dimensions = 2;
  index.dimension[0].local = index.dimension[0].global = kRows;
  index.dimension[1] = {kHeld, kColumns, 1, {kFirst}, {kHeld}};
  part.run(parts, 2, 9);
  const std::vector<Values> results = part.stored(), expected = whole.stored();
  for (std::size_t i = 0; i < results.size(); ++i) EXPECT_EQ(results[i], held(expected[i]));
}

TEST(rounded_states, a_second_moment_of_zero_has_no_first_one) {
  const Tensors tensors(Dtype::bf16, {{1, 1}, {0, 1e-30}, {0, 0}, {0, 0}});
  tensors.run(0, 1);
  const State result = tensors.state();
  EXPECT_EQ(result.m, Values(2, 0));
  EXPECT_EQ(result.v, Values(2, 0));
  for (const double value : result.parameter) EXPECT_NEAR(value, 1 - kRate * kDecay, 0x1p-7);
}

TEST(rounded_states, moments_that_do_not_belong_together_are_refused) {
  const Tensors tensors(Dtype::bf16, {{1}, {1}, {0}, {0}});
  AdamwParts parts;
  parts.add(tensors.views(), 0, 1, 1);
  for (const auto& [m, v] : {std::pair{Dtype::e4m3, Dtype::fp32},
                             {Dtype::bf16, Dtype::fp32},
                             {Dtype::int32, Dtype::int32},
                             {Dtype::e5m2, Dtype::bf16}})
    EXPECT_NE((Adamw{parts.pieces, Dtype::bf16, false, 0, kOptions, m, v}.fault()), "");
  EXPECT_NE((Adamw{parts.pieces, Dtype::bf16, true, 0, kOptions, Dtype::e4m3, Dtype::bf16}.fault()),
            "");
  EXPECT_EQ(
      (Adamw{parts.pieces, Dtype::bf16, false, 0, kOptions, Dtype::e4m3, Dtype::bf16}.fault()), "");
}

// Sums of microbatches in bf16: the mean over seeds is the sum, and no cut changes a bit.
struct Sum {
  Values add(const std::vector<Values>& summands, std::uint64_t seed, Dtype storage,
             std::int64_t first = 0) const {
    const auto count = static_cast<std::int64_t>(summands.front().size());
    const Array sum(Dtype::bf16, {count}), step(Dtype::int64, {1}, Values{5});
    for (std::size_t i = 0; i < summands.size(); ++i) {
      const Array x(execution::accumulation(storage), {count}, summands[i]);
      const bool counted = i % 2 == 1;  // told by the device, or known
      RoundSum op{.elements = count,
                  .storage = storage,
                  .accumulate = i > 0,
                  .counted = counted,
                  .number = static_cast<std::int64_t>(i),
                  .seed = seed,
                  .stream = 3};
      op.index.first = first;
      const Array next = int32_array({static_cast<std::int32_t>(i + 1)});
      on_queue([&](Queue& q) {
        op.run(q, {.step = step, .microbatch = counted ? next : Array(), .x = x, .sum = sum});
      });
    }
    return sum.values();
  }
};

TEST(rounded_states, sums_of_bf16_are_the_sums_on_average) {
  Random random;
  constexpr int kSeeds = 2000;
  constexpr std::int64_t kCount = 21;
  for (const Dtype storage : kFloatingTypes) {
    std::vector<Values> summands;
    Values expected(kCount), mean(kCount), size(kCount);
    for (int i = 0; i < 4; ++i) {
      summands.push_back(rounded(random.normal(kCount), execution::accumulation(storage)));
      for (std::size_t j = 0; j < kCount; ++j) {
        expected[j] += summands.back()[j];
        size[j] += std::abs(summands.back()[j]);
      }
    }
    for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
      const Values sum = Sum().add(summands, seed, storage);
      for (std::size_t j = 0; j < kCount; ++j) mean[j] += sum[j] / kSeeds;
    }
    // Four roundings, each of a deviation of half a step at most; four deviations of the mean.
    for (std::size_t j = 0; j < kCount; ++j)
      EXPECT_NEAR(mean[j], expected[j],
                  4 * 2 * execution::epsilon(Dtype::bf16) * size[j] / std::sqrt(kSeeds));
  }
}

TEST(rounded_states, no_cut_changes_a_bit_of_sums) {
  Random random;
  constexpr std::int64_t kCount = 1003;
  const std::vector<Values> summands{random.normal(kCount), random.normal(kCount)};
  const Values whole = Sum().add(summands, 1, Dtype::bf16);
  EXPECT_NE(whole, Sum().add(summands, 2, Dtype::bf16));
  for (const std::int64_t first : {1, 8, 500}) {
    const auto behind = [&](const Values& all) { return Values(all.begin() + first, all.end()); };
    EXPECT_EQ(Sum().add({behind(summands[0]), behind(summands[1])}, 1, Dtype::bf16, first),
              behind(whole));
  }
}

}  // namespace
}  // namespace stowage::kernels::test
