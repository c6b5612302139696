// What a trainer of weights alone says next, against the programs that training evaluates with: a
// token of each sequence at a time, by states and caches. Built twice: for the host in all types,
// and for a GPU (STOWAGE_TEST_CUDA), against the host's evaluation.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "execution/backend.hpp"
#include "execution/philox.hpp"
#include "forecast/plan/options.hpp"
#include "inputs/data/run_section.hpp"
#include "layers/state/state.hpp"
#include "run/generate/generator.hpp"
#include "run/step/staging.hpp"

#if STOWAGE_TEST_CUDA
#include "ctest/kernels/need_gpu.hpp"
#include "execution/cuda_backend.hpp"
#include "kernels/linear/dense_product.hpp"
#endif

namespace stowage::run {
namespace {

using execution::Dtype;
using Values = std::vector<double>;

constexpr std::int64_t kVocabulary = 64;
constexpr std::int64_t kWindow = 64;
/// Of the deck's gated delta rule.
constexpr std::int64_t kDeltaHeads = 8, kDeltaKeyHeads = 4, kDeltaDim = 8;
constexpr std::int64_t kDeltaChannels = (2 * kDeltaKeyHeads + kDeltaHeads) * kDeltaDim;
constexpr std::int64_t kDeltaState = kDeltaHeads * kDeltaDim * kDeltaDim;

#if STOWAGE_TEST_CUDA
std::unique_ptr<execution::Backend> make_backend() { return execution::make_cuda_backend(); }
void prepare(execution::Queue& queue) {
  kernels::prepare_products(static_cast<cudaStream_t>(queue.stream()));
}
constexpr bool kOnGpu = true;
#else
std::unique_ptr<execution::Backend> make_backend() { return execution::make_host_backend(); }
void prepare(execution::Queue&) {}
constexpr bool kOnGpu = false;
#endif

inputs::Deck deck_of(const std::string& pattern, const std::string& dtype,
                     const std::vector<std::string>& more = {}) {
  std::vector<std::string> keys = {"model.pattern=" + pattern,     "train.dtype=" + dtype,
                                   "model.init_std=0.2",           "model.delta_key_head_dim=8",
                                   "model.delta_value_head_dim=8", "train.seq_length=96"};
  keys.insert(keys.end(), more.begin(), more.end());
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
      : backend(make_backend()),
        trainer(std::make_unique<forecast::TrainerPlan>(
                    generation_options(deck, {sequences, window}, parallel::RankOrder::partial)),
                *backend, prepare),
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
  const double functions = kOnGpu ? 4 : 1;  // exponentials of a GPU are within a few last digits
  return 4 * functions * rounding * std::sqrt(32.0 + 8.0 * static_cast<double>(pattern.size()));
}

/// How far logits of a document that goes through a generator token by token are from those of
/// training's forward, of the largest logit, at the worst position. A document of other tokens is
/// its neighbour, and one went through it before.
double worst_of(const inputs::Deck& deck, int count) {
  Alone alone(deck, 2, count);
  const Tokens document = some_tokens(1, count), other = some_tokens(2, count);
  const Values expected = evaluated(deck, document);
  double worst = 0;
  for (const bool again : {false, true}) {
    alone.generator.begin();
    for (std::size_t t = 0; t < document.size(); ++t) {
      alone.generator.advance({other[t], again ? document[t] : other[t]});
      if (!again) continue;
      const Values logits = alone.generator.logits(1);
      const auto wanted = std::span(expected).subspan(t * kVocabulary, kVocabulary);
      worst = std::max(worst, distance(logits, wanted) / std::max(1e-300, largest(wanted)));
    }
  }
  return worst;
}

struct Kind {
  const char* pattern;
  const char* dtype;
  std::vector<std::string> keys = {};
};

class generator : public testing::TestWithParam<Kind> {
#if STOWAGE_TEST_CUDA
 protected:
  void SetUp() override { STOWAGE_NEED_GPU(); }
#endif
};
class generation : public testing::Test {
#if STOWAGE_TEST_CUDA
 protected:
  void SetUp() override { STOWAGE_NEED_GPU(); }
#endif
};

TEST_P(generator, logits_are_those_of_trainings_forward_at_every_position) {
  const Kind& kind = GetParam();
  const inputs::Deck deck = deck_of(kind.pattern, kind.dtype, kind.keys);
  const Dtype storage = inputs::read(deck, &inputs::TrainConfig::dtype);
  EXPECT_LE(worst_of(deck, 40), tolerance(storage, kind.pattern));
}

std::vector<Kind> all_kinds() {
  const auto kind = [](const char* pattern, const char* dtype,
                       std::vector<std::string> keys = {}) -> Kind {
    for (std::string& key : keys) key = "model." + key;
    return {pattern, kOnGpu && dtype == std::string("fp64") ? "fp32" : dtype, std::move(keys)};
  };
  const std::string rope = "position_embedding=rope", norms = "qk_layernorm=true";
  const std::string gate = "attention_output_gate=true", part = "rotary_percent=0.5";
  return {kind("M", "fp64"),
          kind("*", "fp64"),
          kind("-", "fp64"),
          kind("E", "fp64"),
          kind("G", "fp64"),
          kind("M*-EG", "fp64"),
          kind("M*-EG", "fp32"),
          kind("M*-G", "bf16"),
          kind("E", "bf16"),
          kind("*", "fp64", {rope}),
          kind("*", "fp64", {rope, part}),
          kind("*", "fp64", {rope, "rope_scaling_factor=8", "rope_scaling_positions=20"}),
          kind("*", "fp64", {norms}),
          kind("*", "fp64", {gate}),
          kind("*", "fp64", {"num_query_groups=1"}),
          kind("*", "fp64", {"num_query_groups=4"}),
          kind("**", "fp32", {rope, norms, gate, part}),
          kind("**", "bf16", {rope, norms, gate, part}),
          kind("M", "fp64", {"mamba_conv_width=2", "mamba_num_groups=1"}),
          kind("G", "fp64", {"delta_conv_width=3", "delta_decay=channel", "delta_decay_rank=3"}),
          kind("E", "fp64", {"activation=swiglu", "moe_shared_expert_gate=true"}),
          kind("M*", "fp64", {"untie_embeddings=false"})};
}

INSTANTIATE_TEST_SUITE_P(all_kinds, generator, testing::ValuesIn(all_kinds()));

/// Logits behind a sequence, of a generator of one.
Values said(Generator& generator, const Tokens& sequence) {
  generator.begin();
  Values logits;
  for (const std::int32_t token : sequence) {
    generator.advance({token});
    logits = generator.logits(0);
  }
  return logits;
}

TEST_F(generation, tokens_are_the_likeliest_and_the_same_each_time) {
  const inputs::Deck deck = deck_of("M*-EG", "fp32");
  const std::vector<Tokens> prompts = {some_tokens(1, 9)};
  Alone first(deck, 1), second(deck, 1);
  const Continuation one = first.generator.generate(prompts, 20, {}).front();
  const Continuation other = second.generator.generate(prompts, 20, {}).front();
  EXPECT_EQ(one.tokens, other.tokens);
  EXPECT_EQ(one.log_probabilities, other.log_probabilities);
  Tokens sequence = prompts.front();
  for (std::size_t i = 0; i < one.tokens.size(); ++i) {
    const auto logits = said(first.generator, sequence);
    EXPECT_EQ(one.tokens[i], likeliest(logits));
    EXPECT_NEAR(one.log_probabilities[i], log_probability(logits, one.tokens[i]),
                0x1p-20 * (1 + largest(logits)));
    sequence.push_back(one.tokens[i]);
  }
}

TEST_F(generation, a_seed_gives_the_tokens_and_another_seed_others) {
  const inputs::Deck deck = deck_of("M*-EG", "fp32");
  const std::vector<Tokens> prompts = {some_tokens(1, 9), some_tokens(1, 9), some_tokens(2, 12)};
  Alone made(deck, 3);
  const auto draw = [&](std::uint64_t seed) {
    return made.generator.generate(prompts, 20, {.temperature = 1, .seed = seed});
  };
  const auto one = draw(1), again = draw(1), other = draw(2);
  EXPECT_EQ(one[0].tokens, again[0].tokens);
  EXPECT_EQ(one[1].log_probabilities, again[1].log_probabilities);
  EXPECT_NE(one[0].tokens, other[0].tokens);
  EXPECT_NE(one[0].tokens, one[1].tokens) << "each place draws for itself";
  EXPECT_EQ(one[2].tokens.size(), 20u) << "a longer prompt, behind which nothing is drawn at first";
}

TEST_F(generation, prompts_of_any_length_give_what_they_give_alone) {
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

// Of M: rows of the convolution and the state; of *: keys and values; of G: rows and the state; and
// the logits behind the last token.
TEST_F(generation, weights_states_and_caches_are_all_that_is_held) {
  for (const char* dtype : {"fp32", "bf16"}) {
    Alone made(deck_of("M*-EG", dtype), 1);
    const std::int64_t bytes_each = dtype == std::string("bf16") ? 2 : 4;
    std::int64_t kept = 0;
    for (const execution::TensorInfo& info : made.trainer.plan().model().sequence_states({3, 100}))
      kept += static_cast<std::int64_t>(info.bytes());
    EXPECT_EQ(kept, 3 * (bytes_each * (3 * (64 + 2 * 2 * 8) + 2 * 2 * 100 * 8) + 4 * 4 * 16 * 8 +
                         bytes_each * 3 * kDeltaChannels + 4 * kDeltaState + 4 * kVocabulary));
    EXPECT_GT(made.trainer.plan().layout().bytes(execution::Lifetime::sequence_state), 0U);
    const execution::PersistentLayout& layout = made.trainer.plan().layout();
    EXPECT_GT(layout.bytes(execution::Lifetime::parameter), 0U);
    EXPECT_EQ(layout.bytes(execution::Lifetime::gradient), 0U);
    EXPECT_FALSE(layout.has(layers::kGoodSteps));
    for (const execution::Bucket& bucket : layout.buckets())
      for (const std::string& name : bucket.tensors)
        EXPECT_EQ(layers::parameter_of(name), name) << "a state of the optimizer";
  }
}

TEST_F(generation, logits_that_are_not_finite_are_refused) {
  Alone made(deck_of("M*-EG", "fp32"), 2);
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const std::int32_t token = 5;
  made.trainer.device().write("embedding.weight", std::as_bytes(std::span(&nan, 1)),
                              token * 32 * sizeof(float));
  try {
    (void)made.generator.generate({{1, 2}, {token, 3}}, 1, {});
    FAIL();
  } catch (const execution::Error& error) {
    EXPECT_EQ(error.exit(), execution::Exit::runtime);
    EXPECT_STREQ(error.what(), "prompt 2: the model's logits are not finite");
  }
}

}  // namespace
}  // namespace stowage::run
