#include "layers/recording/parameters.hpp"

#include <gtest/gtest.h>

#include <cmath>

#include "execution/error.hpp"
#include "forecast/plan/options.hpp"
#include "layers/model/model.hpp"
#include "tiny_model.hpp"

namespace stowage::ctest {
namespace {

using layers::Init;
using layers::Parameter;

std::vector<float> values_of(const Parameter& p, std::uint64_t seed, double std, int layers) {
  return layers::initial_values(p, {0, p.elements()}, seed, std, layers);
}

TEST(parameters, values_depend_on_seed_name_and_index_alone) {
  const Parameter a{"a", {40, 5}, Init::normal};
  const Parameter same{"a", {200}, Init::normal};
  const Parameter other{"b", {200}, Init::normal};
  EXPECT_EQ(values_of(a, 1, 0.02, 4), values_of(same, 1, 0.02, 8));
  EXPECT_NE(values_of(a, 1, 0.02, 4), values_of(a, 2, 0.02, 4));
  EXPECT_NE(values_of(a, 1, 0.02, 4), values_of(other, 1, 0.02, 4));
}

TEST(parameters, a_part_has_the_values_of_the_whole) {
  const Parameter whole{"w", {6, 5, 7}, Init::normal};
  Parameter part = whole;
  part.cuts = {{0, {{1, 3}, {5, 6}}}, {2, {{0, 2}, {3, 4}, {6, 7}}}};
  const std::vector<float> all = values_of(whole, 1, 0.02, 4);
  std::vector<float> expected;
  for (const int i : {1, 2, 5})
    for (const int j : {0, 1, 2, 3, 4})
      for (const int k : {0, 1, 3, 6}) expected.push_back(all[(i * 5 + j) * 7 + k]);
  EXPECT_EQ(part.local_shape(), (std::vector<std::int64_t>{3, 5, 4}));
  EXPECT_EQ(values_of(part, 1, 0.02, 4), expected);
  EXPECT_EQ(layers::initial_values(part, {13, 29}, 1, 0.02, 4),
            std::vector<float>(expected.begin() + 13, expected.begin() + 29));
}

/// Parameters of a model as the layers have them.
std::int64_t count_of(const layers::ModelConfig& config) {
  const layers::Model model(config, {execution::Dtype::bf16}, 1);
  std::int64_t count = 0;
  for (const Parameter& parameter : model.parameters()) count += parameter.global_elements();
  return count;
}

// Sizes that transformers 5.23 gives Qwen3_5TextConfig, Qwen3NextConfig and Qwen3_5MoeTextConfig,
// and counts of their models for causal language; 2B is of its published config.json.
TEST(parameters, qwen_models_have_as_many_as_in_transformers) {
  const auto pattern = [](int layers, const std::string& feed_forward) {
    std::string all;
    for (int layer = 1; layer <= layers; ++layer)
      all += (layer % 4 == 0 ? '*' : 'G') + feed_forward;
    return all;
  };
  layers::ModelConfig qwen;
  qwen.attention.norms = qwen.attention.output_gate = true;
  qwen.attention.head_dim = 256;
  qwen.mlp.activation = kernels::Activation::swiglu;
  qwen.delta = {.key_heads = 16, .value_heads = 32};
  layers::ModelConfig small = qwen;  // Qwen3.5-2B
  small.pattern = pattern(24, "-");
  small.width = 2048, small.vocabulary = 248320, small.tied_embeddings = true;
  small.attention.heads = 8, small.attention.kv_heads = 2;
  small.delta.value_heads = 16, small.mlp.ffn = 6144;
  EXPECT_EQ(count_of(small), 1'881'825'088);
  layers::ModelConfig dense = qwen;  // 9B
  dense.pattern = pattern(32, "-");
  dense.width = 4096, dense.vocabulary = 248320;
  dense.attention.heads = 16, dense.attention.kv_heads = 4, dense.mlp.ffn = 12288;
  EXPECT_EQ(count_of(dense), 8'953'803'264);
  layers::ModelConfig experts = qwen;  // Qwen3-Next-80B-A3B
  experts.pattern = pattern(48, "E");
  experts.width = 2048, experts.vocabulary = 151936;
  experts.attention.heads = 16, experts.attention.kv_heads = 2;
  experts.moe = {.experts = 512, .topk = 10, .ffn = 512, .shared_ffn = 512, .shared_gate = true};
  EXPECT_EQ(count_of(experts), 79'674'391'296);
  experts.pattern = pattern(40, "E");  // Qwen3.5-35B-A3B
  experts.vocabulary = 248320, experts.moe.experts = 256, experts.moe.topk = 8;
  EXPECT_EQ(count_of(experts), 34'660'610'688);
}

// As published, with the biases that choose experts: counts follow from the shapes of the files.
TEST(parameters, nemotron_decks_have_as_many_as_are_published) {
  const auto count_of_deck = [](const std::string& name, bool further = true) {
    layers::ModelConfig config =
        forecast::model_config(inputs::Deck::load(STOWAGE_SOURCE "/inputs/" + name + ".toml"));
    if (!further) config.mtp = {};
    std::int64_t count = count_of(config);
    for (const execution::TensorInfo& info :
         layers::Model(config, {execution::Dtype::bf16}, 1).states())
      count += info.buffers.front().elements();
    return count;
  };
  EXPECT_EQ(count_of_deck("nemotron-nano-30b"), 31'577'940'288);
  EXPECT_EQ(count_of_deck("nemotron-3-5-lightning"), 32'913'266'240);
  EXPECT_EQ(count_of_deck("nemotron-3-super"), 123'611'033'088);
  EXPECT_EQ(count_of_deck("nemotron-3-super", false), 120'668'707'840);
}

TEST(parameters, repeated_rows_are_a_range_of_their_own) {
  // Rows [2 of 4 | 1 of 1 | 1 of 1 | 1 of 2] of rank 1 of two, which has a copy of the single ones.
  Parameter part{"w", {8, 3}, Init::normal};
  part.cuts = {{0, {{2, 4}, {4, 5}, {5, 6}, {7, 8}}}};
  part.repeat = {{2, 4}, 2, 1};
  EXPECT_EQ(part.repeated(), (execution::Range{6, 12}));
  const std::vector<layers::ShardRange> found = part.shard_ranges();
  ASSERT_EQ(found.size(), 3U);
  std::vector<std::int64_t> elements;
  for (const layers::ShardRange& shard : found)
    for (std::int64_t i = 0; i < shard.elements.end - shard.elements.begin; ++i) {
      EXPECT_EQ(shard.index(i), part.index()(shard.elements.begin + i));
      elements.push_back(shard.index(i));
    }
  EXPECT_EQ(elements,
            (std::vector<std::int64_t>{6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 21, 22, 23}));
  // The rank with the first copy calls the same elements alike.
  Parameter first = part;
  first.cuts = {{0, {{0, 2}, {4, 5}, {5, 6}, {6, 7}}}};
  first.repeat.copy = 0;
  for (const std::int64_t i : {0, 3, 5})
    EXPECT_EQ(first.shard_ranges()[1].index(i), found[1].index(i));
  part.repeat = {};
  EXPECT_EQ(part.shard_ranges().size(), 1U);
}

TEST(parameters, a_run_starts_from_them) {
  TinyRun run(tiny_options(every_kind(), execution::Dtype::fp32));
  const forecast::TrainerOptions& options = run.trainer().plan().options();
  for (const Parameter& p : run.trainer().plan().model().parameters()) {
    const std::vector<float> expected =
        values_of(p, options.seed, options.model.init_std, options.model.layers());
    EXPECT_EQ(run.read(p.name), std::vector<double>(expected.begin(), expected.end())) << p.name;
  }
}

TEST(parameters, moments_of_the_normal_are_right) {
  const Parameter p{"weight", {100000}, Init::residual_normal};
  const std::vector<float> values = values_of(p, 3, 0.02, 8);
  double sum = 0, squares = 0;
  for (const float v : values) sum += v, squares += double{v} * v;
  const double deviation = 0.02 / std::sqrt(16.0);
  // Five standard errors of the mean and of the variance of 100000 draws.
  EXPECT_NEAR(sum / 1e5, 0, 5 * deviation / std::sqrt(1e5));
  EXPECT_NEAR(squares / 1e5 / (deviation * deviation), 1, 5 * std::sqrt(2 / 1e5));
}

TEST(parameters, mamba_states_are_in_their_ranges) {
  for (const float a : values_of({"A", {1000}, Init::a_log}, 1, 0, 1)) {
    EXPECT_GE(a, 0);
    EXPECT_LE(a, std::log(16.0F));
  }
  for (const float b : values_of({"dt", {1000}, Init::dt_bias}, 1, 0, 1)) {
    const double dt = std::log1p(std::exp(double{b}));
    EXPECT_GT(dt, 0.999e-3);
    EXPECT_LT(dt, 0.1001);
  }
}

TEST(parameters, a_bad_letter_is_a_usage_error) {
  forecast::TrainerOptions options = tiny_options("M*X", execution::Dtype::fp32);
  try {
    layers::Model model(options.model, options.precision, 1, options.sharing.ranks);
    FAIL();
  } catch (const execution::Error& error) {
    EXPECT_EQ(error.exit(), execution::Exit::usage);
    EXPECT_NE(std::string(error.what()).find("'X'"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace stowage::ctest
