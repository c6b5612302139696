#include "layers/model/flops.hpp"

#include <gtest/gtest.h>

#include "execution/error.hpp"

namespace stowage::layers {
namespace {

/// Nemotron-3-Nano: the counts per token are published, or follow from its published sizes.
ModelConfig nano(const char* pattern) {
  ModelConfig model;
  model.pattern = pattern;
  model.width = 2688;
  model.vocabulary = 131072;
  model.attention = {.heads = 32, .kv_heads = 2, .head_dim = 128};
  model.mamba = {.heads = 64, .head_dim = 64, .groups = 8, .state = 128, .chunk = 128};
  model.moe = {.experts = 128, .topk = 6, .ffn = 1856, .shared_ffn = 3712};
  return model;
}

constexpr double kLength = 8192;
constexpr StepWork kOneSequence = {kLength, kLength*(kLength + 1) / 2};

StepFlops per_token(const char* pattern) {
  StepFlops flops = step_flops(nano(pattern), kOneSequence);
  flops.model /= kLength;
  flops.megatron_compat /= kLength;
  return flops;
}

TEST(flops, megatron_logs_this_of_nemotron_nano) {
  const double logged =
      per_token("MEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEMEM*EMEMEMEME").megatron_compat;
  EXPECT_NEAR(logged, 22.28e9, 0.01e9);
}

TEST(flops, layers_of_nemotron_nano) {
  const double head = per_token("").model;
  EXPECT_NEAR(head / 3, 704.6e6, 0.1e6);
  EXPECT_NEAR((per_token("*").model - head) / 3, 113.9e6, 0.1e6);
  EXPECT_NEAR((per_token("E").model - head) / 3, 159.6e6 + 2 * 2688 * 128, 0.1e6);
  // Two projections, 78 M, the scan's causal half, 2.9 M, and the convolution.
  EXPECT_NEAR((per_token("M").model - head) / 3, 77.4e6 + 2.88e6 + 2 * 4 * 6144, 0.2e6);
}

TEST(flops, a_letter_without_a_count_is_refused_and_a_cut_is_free) {
  EXPECT_DOUBLE_EQ(per_token("M|E").model, per_token("ME").model);
  EXPECT_THROW(per_token("MQ"), execution::Error);
}

TEST(flops, documents_shorten_attention_alone) {
  const StepWork halves = {kLength, 2 * (kLength / 2) * (kLength / 2 + 1) / 2};
  const StepFlops whole = step_flops(nano("*"), kOneSequence), cut = step_flops(nano("*"), halves);
  EXPECT_DOUBLE_EQ(whole.model - cut.model,
                   3 * 4.0 * 32 * 128 * (kOneSequence.pairs - halves.pairs));
  EXPECT_DOUBLE_EQ(step_flops(nano("ME"), kOneSequence).model,
                   step_flops(nano("ME"), halves).model);
}

TEST(flops, gates_have_products_of_their_own) {
  ModelConfig model = nano("*E");
  const double without = step_flops(model, {1, 1}).model;
  model.attention.output_gate = model.moe.shared_gate = true;
  EXPECT_DOUBLE_EQ(step_flops(model, {1, 1}).model - without, 3 * 2.0 * 2688 * (32 * 128 + 1));
}

TEST(flops, latent_experts_have_two_products_more) {
  ModelConfig model = nano("E");
  const double wide = step_flops(model, {1, 1}).model;
  model.moe.latent = 1024;
  const double narrower = 6 * 2.0 * 2 * 1856 * (2688 - 1024);
  EXPECT_DOUBLE_EQ(step_flops(model, {1, 1}).model - wide, 3 * (4.0 * 2688 * 1024 - narrower));
}

TEST(flops, each_depth_has_a_block_a_head_and_what_joins_them) {
  ModelConfig model = nano("M*E");
  const double without = step_flops(model, kOneSequence).model;
  model.mtp = {.depths = 2, .pattern = "*E", .shared = true};
  const double join = 3 * kLength * 4 * 2688.0 * 2688;
  EXPECT_NEAR(step_flops(model, kOneSequence).model - without,
              2 * (step_flops(nano("*E"), kOneSequence).model + join), 1e-6 * without);
}

TEST(flops, swiglu_has_a_third_matrix) {
  ModelConfig model = nano("-");
  model.mlp.ffn = 8192;
  const double two = step_flops(model, {1, 1}).model;
  model.mlp.activation = kernels::Activation::swiglu;
  EXPECT_DOUBLE_EQ(step_flops(model, {1, 1}).model - two, 3 * 2.0 * 2688 * 8192);
}

}  // namespace
}  // namespace stowage::layers
