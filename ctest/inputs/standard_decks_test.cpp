// The decks that ship: each is valid, and has the shape that the user's guide says.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <numeric>
#include <string>
#include <vector>

#include "execution/error.hpp"
#include "inputs/deck/check.hpp"
#include "inputs/deck/deck.hpp"
#include "inputs/deck/shipped.hpp"

namespace stowage::inputs {
namespace {

Deck standard(const std::string& name) {
  return Deck::load(STOWAGE_INPUTS_DIR "/" + name + ".toml");
}

/// Parameters of the model family by its formulas, apart from the layers' code.
std::int64_t parameters(const Deck& deck) {
  const auto n = [&](std::string_view key) { return deck.get<std::int64_t>(key); };
  const std::int64_t d = n("model.hidden_size"), heads = n("model.mamba_num_heads");
  const std::int64_t inner = heads * n("model.mamba_head_dim");
  const std::int64_t bc = 2 * n("model.mamba_num_groups") * n("model.mamba_state_dim");
  const std::int64_t q = n("model.num_attention_heads") * n("model.head_dim");
  const std::int64_t kv = n("model.num_query_groups") * n("model.head_dim");
  const std::int64_t gates = deck.get<bool>("model.attention_output_gate") ? q : 0;
  const std::int64_t matrices = deck.get<std::string>("model.activation") == "swiglu" ? 3 : 2;
  const std::int64_t tables = deck.get<bool>("model.untie_embeddings") ? 2 : 1;
  std::int64_t total = tables * n("model.vocab_size") * d + d;  // embedding, head, last norm
  const std::string further = deck.get<std::string>("model.mtp_pattern");  // of one block
  if (!further.empty()) total += 2 * d * d + 3 * d;  // what joins two streams, and norms
  for (const char letter : deck.get<std::string>("model.pattern") + further) {
    total += d;  // the layer's norm
    if (letter == '*') {
      total += d * (q + gates + 2 * kv) + q * d;
      if (deck.get<bool>("model.qk_layernorm")) total += 2 * n("model.head_dim");
    }
    if (letter == '-') total += matrices * d * n("model.ffn_hidden_size");
    if (letter == 'G') {
      const std::int64_t values = n("model.delta_num_value_heads");
      const std::int64_t v = values * n("model.delta_value_head_dim");
      const std::int64_t qkv =
          2 * n("model.delta_num_key_heads") * n("model.delta_key_head_dim") + v;
      total += d * (v + qkv + 2 * values) + v * d;            // projections
      total += qkv * n("model.delta_conv_width");             // convolution
      total += 2 * values + n("model.delta_value_head_dim");  // A, dt bias, norm
    }
    if (letter == 'M') {
      total += d * (2 * inner + bc + heads) + inner * d;          // projections
      total += (inner + bc) * (n("model.mamba_conv_width") + 1);  // convolution, bias
      total += 3 * heads + inner;                                 // A, D, dt bias, norm
    }
    if (letter == 'E') {
      const std::int64_t latent = n("model.moe_latent_size"), width = latent > 0 ? latent : d;
      total += n("model.num_moe_experts") * (d + 2 * width * n("model.moe_ffn_hidden_size"));
      total += 2 * latent * d;
      total += 2 * d * n("model.moe_shared_expert_hidden_size");
    }
  }
  return total;
}

std::int64_t count(const Deck& deck, char letter) {
  return std::ranges::count(
      deck.get<std::string>("model.pattern") + deck.get<std::string>("model.mtp_pattern"), letter);
}

/// Biases that choose experts: published counts have them, but they are not trained.
std::int64_t biases(const Deck& deck) {
  return count(deck, 'E') * deck.get<std::int64_t>("model.num_moe_experts");
}

void expect_common(const Deck& deck) {
  EXPECT_EQ(deck.get<std::string>("model.activation"), "squared_relu");
  EXPECT_EQ(deck.get<std::string>("model.position_embedding"), "none");
  EXPECT_TRUE(deck.get<bool>("model.untie_embeddings"));
  EXPECT_EQ(check_ranks(deck, 1), 1);  // one microbatch
}

TEST(standard_decks, every_file_in_the_folder_loads) {
  int decks = 0;
  for (const auto& entry : std::filesystem::directory_iterator(STOWAGE_INPUTS_DIR)) {
    if (entry.path().extension() != ".toml") continue;
    EXPECT_NO_THROW(Deck::load(entry.path().string())) << entry.path();
    ++decks;
  }
  EXPECT_GE(decks, 5);
}

TEST(standard_decks, machines_are_includes) {
  for (const auto& entry : std::filesystem::directory_iterator(STOWAGE_INPUTS_DIR "/machines")) {
    if (entry.path().extension() != ".toml") continue;
    const Deck deck =
        Deck::parse("include = \"" + entry.path().string() +
                        "\"\n[model]\npattern = \"-\"\n[data]\nsource = \"synthetic\"",
                    "test");
    EXPECT_GT(deck.get<double>("machine.d2h_bytes_per_s"), 0) << entry.path();
  }
}

TEST(standard_decks, quickstart) {
  const Deck deck = standard("quickstart");
  for (const char letter : {'M', '*', '-', 'E'}) EXPECT_GE(count(deck, letter), 1) << letter;
  EXPECT_EQ(deck.get<std::int64_t>("model.vocab_size"), 256);
  EXPECT_EQ(deck.get<double>("data.held_out_fraction"), 0.05);
  EXPECT_EQ(deck.get<double>("validate.val_loss_below"), 2.2);
  for (const std::int64_t ranks : {1, 2, 4}) EXPECT_GE(check_ranks(deck, ranks), 1);
}

TEST(standard_decks, dense_124m) {
  const Deck deck = standard("dense-124m");
  expect_common(deck);
  EXPECT_EQ(count(deck, '*'), 12);
  EXPECT_EQ(count(deck, '-'), 12);
  EXPECT_NEAR(static_cast<double>(parameters(deck)), 162e6, 0.5e6);
}

TEST(standard_decks, hybrid_dense_1b) {
  const Deck deck = standard("hybrid-dense-1b");
  expect_common(deck);
  EXPECT_NEAR(static_cast<double>(parameters(deck)), 0.99e9, 0.005e9);
}

TEST(standard_decks, hybrid_moe_2b) {
  const Deck deck = standard("hybrid-moe-2b");
  expect_common(deck);
  EXPECT_NEAR(static_cast<double>(parameters(deck)), 2.05e9, 0.005e9);
}

TEST(standard_decks, packed) {
  for (const std::string name : {"hybrid-dense-1b", "hybrid-moe-2b"}) {
    const Deck deck = standard(name + "-packed");
    EXPECT_EQ(deck.get<std::string>("model.pattern"),
              standard(name).get<std::string>("model.pattern"));
    const auto& lengths = deck.get<std::vector<std::int64_t>>("data.synthetic_lengths");
    EXPECT_EQ(lengths.size(), 161u);
    EXPECT_EQ(std::accumulate(lengths.begin(), lengths.end(), std::int64_t{0}), 65536);
  }
}

TEST(standard_decks, nemotron_nano_30b) {
  const Deck deck = standard("nemotron-nano-30b");
  expect_common(deck);
  EXPECT_EQ(count(deck, 'M'), 23);
  EXPECT_EQ(count(deck, 'E'), 23);
  EXPECT_EQ(count(deck, '*'), 6);
  EXPECT_EQ(parameters(deck), 31'577'940'288 - biases(deck));
  EXPECT_EQ(deck.get<double>("model.moe_router_topk_scaling_factor"), 2.5);
}

// Latent experts, and a block that predicts further tokens.
TEST(standard_decks, nemotron_3_5_lightning_and_3_super) {
  const Deck lightning = standard("nemotron-3-5-lightning"), super = standard("nemotron-3-super");
  for (const Deck& deck : {lightning, super}) expect_common(deck);
  EXPECT_EQ(parameters(lightning), 32'913'266'240 - biases(lightning));
  EXPECT_EQ(count(super, 'M'), 40);
  EXPECT_EQ(count(super, 'E'), 41);
  EXPECT_EQ(count(super, '*'), 9);
  EXPECT_EQ(parameters(super), 123'611'033'088 - biases(super));
}

// Counts that their publisher's converter verifies, or that follow from the published shapes.
TEST(standard_decks, published_models) {
  const std::map<std::string, std::int64_t> published = {
      {"nemotron-h-4b", 4'489'223'040},       {"nemotron-h-8b", 8'100'852'736},
      {"nemotron-h-47b", 46'791'554'816},     {"nemotron-h-56b", 56'324'350'464},
      {"nemotron-nano-9b-v2", 8'888'227'328}, {"nemotron-nano-12b-v2", 12'310'001'152},
      {"nemotron-3-nano-4b", 3'973'556'832}};
  for (const auto& [name, count] : published) {
    const Deck deck = standard(name);
    expect_common(deck);
    EXPECT_EQ(parameters(deck), count) << name;
  }
}

// transformers 5.23 counts as many in its Qwen3_5ForCausalLM of these sizes.
TEST(standard_decks, qwen3_5_2b) {
  const Deck deck = standard("qwen3-5-2b");
  EXPECT_EQ(count(deck, 'G'), 18);
  EXPECT_EQ(count(deck, '*'), 6);
  EXPECT_EQ(count(deck, '-'), 24);
  EXPECT_EQ(parameters(deck), 1'881'825'088);
  EXPECT_EQ(check_ranks(deck, 1), 1);
}

TEST(standard_decks, machines_are_told_in_the_order_of_their_names) {
  try {
    (void)shipped_file("--machine", "machines", "abacus");
    ADD_FAILURE() << "no machine has this name";
  } catch (const execution::Error& error) {
    EXPECT_NE(std::string(error.what()).find("h100, h100-x4, h200, h200-cluster, h200-x4"),
              std::string::npos)
        << error.what();
  }
}

}  // namespace
}  // namespace stowage::inputs
