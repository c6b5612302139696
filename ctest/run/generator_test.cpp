// What a trainer of weights alone says next, against the programs that training evaluates with.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "execution/backend.hpp"
#include "execution/philox.hpp"
#include "forecast/plan/options.hpp"
#include "layers/state/state.hpp"
#include "run/generate/generator.hpp"
#include "run/step/staging.hpp"

namespace stowage::run {
namespace {

using execution::Dtype;
using Values = std::vector<double>;

constexpr std::int64_t kVocabulary = 64;
constexpr std::int64_t kWindow = 64;

inputs::Deck deck_of(const std::string& pattern, const std::string& dtype) {
  const std::vector<std::string> keys = {
      "model.pattern=" + pattern,   "train.dtype=" + dtype,         "model.init_std=0.2",
      "model.delta_key_head_dim=8", "model.delta_value_head_dim=8", "train.seq_length=96"};
  return inputs::Deck::load(STOWAGE_SOURCE "/ctest/drivers/tiny.toml", keys);
}

Tokens some_tokens(std::uint64_t stream, int count) {
  Tokens tokens;
  for (int i = 0; i < count; ++i)
    tokens.push_back(static_cast<std::int32_t>(
        execution::random_bits(5, stream, static_cast<std::uint64_t>(i)) % kVocabulary));
  return tokens;
}

/// A generator of a deck's initial weights, which follow from the deck alone.
struct Alone {
  Alone(const inputs::Deck& deck, std::int64_t sequences, std::int64_t window = kWindow)
      : backend(execution::make_host_backend()),
        trainer(std::make_unique<forecast::TrainerPlan>(
                    generation_options(deck, sequences, window, parallel::RankOrder::partial)),
                *backend),
        generator(trainer) {}

  std::unique_ptr<execution::Backend> backend;
  Trainer trainer;
  Generator generator;
};

/// (tokens, V) logits of a document by a training run's evaluation of the same weights. It stands
/// behind one document and before another, in sequences of another length.
Values evaluated(const inputs::Deck& deck, const Tokens& document) {
  constexpr std::int64_t kTokens = 96;
  const auto backend = execution::make_host_backend();
  const layers::Sharing alone;
  const forecast::TrainerOptions options = forecast::trainer_options(
      deck, {.capacities = {3}, .evaluates = true, .logits = layers::Logits::all}, 1, alone.ranks,
      parallel::RankOrder::partial);
  Trainer trainer(std::make_unique<forecast::TrainerPlan>(options), *backend);
  const auto [recorded, executor] = trainer.evaluation(3);
  Tokens tokens = some_tokens(77, kTokens);
  constexpr std::int32_t kFirst = 23;
  std::ranges::copy(document, tokens.begin() + kFirst);
  const auto end = kFirst + static_cast<std::int32_t>(document.size());
  const auto stage = [&](execution::Tensor input, const Tokens& values) {
    std::memcpy(executor.stage(input).data(), values.data(), values.size() * sizeof(std::int32_t));
  };
  stage(recorded.inputs.tokens, tokens);
  stage(recorded.inputs.targets, Tokens(tokens.size(), 1));
  stage(recorded.inputs.cu_seqlens, {0, kFirst, end, kTokens});
  executor.step();
  const Values all = read_values(executor, recorded.logits, 0);
  return {all.begin() + kFirst * kVocabulary, all.begin() + end * kVocabulary};
}

double largest(std::span<const double> values) {
  double most = 0;
  for (const double value : values) most = std::max(most, std::abs(value));
  return most;
}

double distance(std::span<const double> a, std::span<const double> b) {
  double most = 0;
  for (std::size_t i = 0; i < a.size(); ++i) most = std::max(most, std::abs(a[i] - b[i]));
  return most;
}

/// Of a largest logit: some eight tensors a layer are rounded to the storage, and sums of some 32
/// terms are made in another order; both add up like random steps.
double tolerance(Dtype dtype, const std::string& pattern) {
  const double rounding = dtype == Dtype::fp64 ? 0x1p-53 : dtype == Dtype::fp32 ? 0x1p-24 : 0x1p-9;
  return 4 * rounding * std::sqrt(32.0 + 8.0 * static_cast<double>(pattern.size()));
}

class generator : public testing::TestWithParam<std::pair<const char*, const char*>> {};

TEST_P(generator, logits_are_those_of_trainings_forward_token_by_token) {
  const auto& [pattern, dtype] = GetParam();
  const inputs::Deck deck = deck_of(pattern, dtype);
  Alone alone(deck, 2);
  std::vector<Tokens> sequences = {some_tokens(1, 7), some_tokens(2, 12)};
  const std::size_t prompt = sequences.front().size();
  constexpr int kCount = 25;
  std::vector<Values> said;
  for (int i = 0; i < kCount; ++i) {
    const std::span<const double> logits = alone.generator.logits(sequences);
    for (std::size_t s = 0; s < sequences.size(); ++s) {
      const auto own = logits.subspan(s * kVocabulary, kVocabulary);
      if (s == 0) said.emplace_back(own.begin(), own.end());
      sequences[s].push_back(likeliest(own));
    }
  }
  const Values all = evaluated(deck, sequences.front());
  const Dtype storage = alone.trainer.plan().options().precision.storage;
  for (int i = 0; i < kCount; ++i) {
    const auto expected = std::span(all).subspan(
        (prompt - 1 + static_cast<std::size_t>(i)) * kVocabulary, kVocabulary);
    EXPECT_LE(distance(said[static_cast<std::size_t>(i)], expected),
              tolerance(storage, pattern) * largest(expected))
        << "token " << i;
  }
}

INSTANTIATE_TEST_SUITE_P(all_kinds, generator,
                         testing::Values(std::pair("M", "fp64"), std::pair("*", "fp64"),
                                         std::pair("-", "fp64"), std::pair("E", "fp64"),
                                         std::pair("G", "fp64"), std::pair("M*-EG", "fp64"),
                                         std::pair("M*-EG", "fp32"), std::pair("M*-G", "bf16"),
                                         std::pair("E", "bf16")));

TEST(generation, tokens_are_the_likeliest_and_the_same_each_time) {
  const inputs::Deck deck = deck_of("M*-EG", "fp32");
  const std::vector<Tokens> prompts = {some_tokens(1, 9)};
  Alone first(deck, 1), second(deck, 1);
  const Continuation one = first.generator.generate(prompts, 20, {}).front();
  const Continuation other = second.generator.generate(prompts, 20, {}).front();
  EXPECT_EQ(one.tokens, other.tokens);
  EXPECT_EQ(one.log_probabilities, other.log_probabilities);
  Tokens sequence = prompts.front();
  for (std::size_t i = 0; i < one.tokens.size(); ++i) {
    const auto logits = first.generator.logits({&sequence, 1});
    EXPECT_EQ(one.tokens[i], likeliest(logits));
    EXPECT_EQ(one.log_probabilities[i], log_probability(logits, one.tokens[i]));
    sequence.push_back(one.tokens[i]);
  }
}

TEST(generation, a_seed_gives_the_tokens_and_another_seed_others) {
  const inputs::Deck deck = deck_of("M*-EG", "fp32");
  const std::vector<Tokens> prompts = {some_tokens(1, 9), some_tokens(1, 9)};
  Alone made(deck, 2);
  const auto draw = [&](std::uint64_t seed) {
    return made.generator.generate(prompts, 20, {.temperature = 1, .seed = seed});
  };
  const auto one = draw(1), again = draw(1), other = draw(2);
  EXPECT_EQ(one[0].tokens, again[0].tokens);
  EXPECT_EQ(one[1].log_probabilities, again[1].log_probabilities);
  EXPECT_NE(one[0].tokens, other[0].tokens);
  EXPECT_NE(one[0].tokens, one[1].tokens) << "each place draws for itself";
}

TEST(generation, prompts_of_any_length_give_what_they_give_alone) {
  for (const std::string pattern : {"M*-EG", "E"}) {
    const inputs::Deck deck = deck_of(pattern, "fp32");
    const std::vector<Tokens> prompts = {some_tokens(1, 1), some_tokens(2, 44), some_tokens(3, 17)};
    const auto together = Alone(deck, 3).generator.generate(prompts, 20, {});
    for (std::size_t i = 0; i < prompts.size(); ++i) {
      const std::int64_t window = static_cast<std::int64_t>(prompts[i].size()) + 20;
      const Continuation alone =
          Alone(deck, 1, window).generator.generate({prompts[i]}, 20, {}).front();
      EXPECT_EQ(together[i].tokens, alone.tokens) << "prompt " << i;
      EXPECT_LE(distance(together[i].log_probabilities, alone.log_probabilities),
                tolerance(Dtype::fp32, pattern) * largest(alone.log_probabilities));
    }
  }
}

TEST(generation, weights_are_all_that_is_held) {
  for (const char* dtype : {"fp32", "bf16"}) {
    Alone made(deck_of("M*-EG", dtype), 1);
    const execution::PersistentLayout& layout = made.trainer.plan().layout();
    EXPECT_GT(layout.bytes(execution::Lifetime::parameter), 0U);
    EXPECT_EQ(layout.bytes(execution::Lifetime::gradient), 0U);
    EXPECT_FALSE(layout.has(layers::kGoodSteps));
    for (const execution::Bucket& bucket : layout.buckets())
      for (const std::string& name : bucket.tensors)
        EXPECT_EQ(layers::parameter_of(name), name) << "a state of the optimizer";
  }
}

TEST(generation, logits_that_are_not_finite_are_refused) {
  Alone made(deck_of("M*-EG", "fp32"), 2);
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const std::int32_t token = 5;
  made.trainer.device().write("embedding.weight", std::as_bytes(std::span(&nan, 1)),
                              token * 32 * sizeof(float));
  const std::vector<Tokens> prompts = {{1, 2}, {token, 3}};
  try {
    (void)made.generator.logits(prompts);
    FAIL();
  } catch (const execution::Error& error) {
    EXPECT_EQ(error.exit(), execution::Exit::runtime);
    EXPECT_STREQ(error.what(), "prompt 2: the model's logits are not finite");
  }
}

}  // namespace
}  // namespace stowage::run
