// config.json and names of tensors: what they are here, and back.
#include <gtest/gtest.h>

#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "inputs/deck/deck.hpp"
#include "inputs/huggingface/config.hpp"
#include "support.hpp"

namespace stowage::inputs::huggingface {
namespace {

using testing::expect_parts;
using testing::usage_error;

const std::string kSmall = R"("model_type": "nemotron_h", "vocab_size": 64, "hidden_size": 32,
  "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "mamba_num_heads": 6,
  "mamba_head_dim": 16, "n_groups": 2, "ssm_state_size": 8, "n_routed_experts": 4,
  "num_experts_per_tok": 3, "moe_intermediate_size": 24, "intermediate_size": 48,
  "moe_shared_expert_intermediate_size": 40, "routed_scaling_factor": 2.5,
  "mlp_hidden_act": "relu2", "time_step_limit": [0.0, Infinity], "dtype": "bfloat16",
  "max_position_embeddings": 4096, "layer_norm_epsilon": 1e-6)";

Config config(const std::string& more, const std::string& start = kSmall) {
  return parse_config("{" + start + (more.empty() ? "" : ", ") + more + "}", "c");
}

Deck deck_of(const Config& config) {
  return Deck::parse(config.deck_text() + "[data]\nsource = \"synthetic\"\n", "c");
}

void refuse(const std::string& more, std::initializer_list<std::string_view> words,
            const std::string& start = kSmall) {
  expect_parts(usage_error([&] { (void)config(more, start); }), words);
}

const std::string kPattern = R"("hybrid_override_pattern": "M*-E")";

TEST(huggingface_config, nemotron_h_is_read) {
  const Config read = config(kPattern);
  const Deck deck = deck_of(read);
  EXPECT_EQ(deck.get<std::string>("model.pattern"), "M*-E");
  EXPECT_EQ(deck.get<std::int64_t>("model.head_dim"), 16);
  EXPECT_EQ(deck.get<std::int64_t>("model.num_query_groups"), 2);
  EXPECT_EQ(deck.get<std::int64_t>("model.mamba_chunk_size"), 128);  // the family's default
  EXPECT_EQ(deck.get<double>("model.moe_router_topk_scaling_factor"), 2.5);
  EXPECT_EQ(deck.get<double>("model.norm_epsilon"), 1e-6);
  EXPECT_EQ(deck.get<double>("model.mamba_dt_max"), kInfinity);
  EXPECT_EQ(deck.get<std::string>("model.activation"), "squared_relu");
  EXPECT_TRUE(deck.get<bool>("model.untie_embeddings"));
  EXPECT_EQ(read.dtype, "bf16");
  EXPECT_EQ(read.ignored, (std::vector<std::string>{"max_position_embeddings"}));
  const Config words = config(
      R"("layers_block_type": ["mamba", "full_attention", "mlp", "moe"], "num_hidden_layers": 4)");
  EXPECT_EQ(words.keys, read.keys);
  const Config wrapped =
      config(kPattern + R"(, "mamba_dt_limit": [0.0, {"__float__": "Infinity"}])");
  EXPECT_EQ(wrapped.keys, read.keys);
}

// In Qwen3-Next "linear_attention" is Gated DeltaNet, in Nemotron-H it is Mamba-2.
TEST(huggingface_config, words_of_layers_are_the_familys) {
  const std::string qwen = R"("model_type": "qwen3", "num_hidden_layers": 2)";
  EXPECT_EQ(config(R"("layer_types": ["full_attention", "full_attention"])", qwen).keys,
            config("", qwen).keys);
  for (const char* word : {"linear_attention", "sliding_attention", "mamba", "attention"})
    refuse(fmt::format(R"("layer_types": ["full_attention", "{}"])", word),
           {"c: layer_types = \"" + std::string(word) + '"', "allowed: full_attention"}, qwen);
  refuse(R"("layer_types": ["full_attention"])", {"layer_types of 1 layers", "contradicts", "2"},
         qwen);
  refuse(R"("layer_types": "full_attention")", {"layer_types", "a list of words"}, qwen);
  refuse(R"("layer_types": ["mamba", "sliding_attention"])",
         {"layer_types = \"sliding_attention\"", "linear_attention, mamba, full_attention"});
  for (const char* letters : {"MQ", "M|*"})
    refuse(fmt::format(R"("hybrid_override_pattern": "{}")", letters),
           {"c: hybrid_override_pattern", letters, "allowed: the letters M, *, -, E"});
}

TEST(huggingface_config, words_of_layers_are_written_for_other_layers) {
  const std::string like = R"({"model_type": "qwen3", "num_hidden_layers": 1,
                               "layer_types": ["full_attention"]})";
  const Config read = config("", R"("model_type": "qwen3", "num_hidden_layers": 3)");
  const std::string text = config_text(*read.family, deck_of(read), like);
  EXPECT_EQ(parse_config(text, "again").keys, read.keys);
}

TEST(huggingface_config, all_letters_of_a_family_have_words_where_it_writes_words) {
  for (const Family* family : families())
    for (const NameRow& row : family->names)
      for (const char letter : row.letters) {
        if (family->words.empty()) continue;
        if (!family->block.empty() && family->block.find(letter) == std::string_view::npos)
          continue;
        const bool has_word = std::ranges::any_of(family->words, [&](const Word& word) {
          return word.ours.find(letter) != std::string_view::npos;
        });
        EXPECT_TRUE(has_word) << family->model_type << ": " << letter;
      }
}

TEST(huggingface_config, convolutions_have_two_to_four_taps) {
  const auto width = [](const char* kernel) {
    return deck_of(config(kPattern + kernel)).get<std::int64_t>("model.mamba_conv_width");
  };
  EXPECT_EQ(width(R"(, "conv_kernel": 2)"), 2);
  EXPECT_EQ(width(R"(, "conv_kernel": 3)"), 3);
  EXPECT_EQ(width(""), 4);
  expect_parts(usage_error([&] { width(R"(, "conv_kernel": 5)"); }),
               {"mamba_conv_width", "5", "[2, 4]"});
}

TEST(huggingface_config, what_cannot_be_is_named) {
  refuse(kPattern + R"(, "moe_latent_size": "8")", {"c", "moe_latent_size", "8", "integer"});
  refuse(kPattern + R"(, "num_nextn_predict_layers": -1)", {"num_nextn_predict_layers", "-1"});
  refuse(kPattern + R"(, "num_nextn_predict_layers": 1, "mtp_hybrid_override_pattern": "*?")",
         {"mtp_hybrid_override_pattern", "*?", "letters"});
  refuse(kPattern + R"(, "use_bias": true)", {"use_bias", "biases", "allowed: false"});
  refuse(kPattern + R"(, "tie_word_embeddings": true)", {"tie_word_embeddings"});
  refuse(kPattern + R"(, "surprise": 1)", {"surprise", "not known"});
  refuse(kPattern + R"(, "num_hidden_layers": 5)", {"num_hidden_layers", "contradicts", "4"});
  refuse(kPattern + R"(, "layers_block_type": ["moe"])", {"contradicts", "layers_block_type"});
  refuse(kPattern + R"(, "rms_norm_eps": 1e-5)", {"contradicts", "layer_norm_epsilon"});
  refuse(R"("layers_block_type": ["lstm"])", {"lstm", "moe"});
  refuse("", {"has no layers_block_type"});
  refuse(kPattern, {"hidden_size", "\"wide\"", "integer"},
         R"("model_type": "nemotron_h", "hidden_size": "wide")");
  refuse(kPattern, {"mlp_hidden_act", "gelu"},
         R"("model_type": "nemotron_h", "mlp_hidden_act": "gelu")");
  refuse("", {"model_type 'bamba'", "a table of its names"}, R"("model_type": "bamba")");
  refuse("", {"model_type 'new'", "nemotron_h", "llama"}, R"("model_type": "new")");
  expect_parts(usage_error([] { (void)parse_config("[1]", "c"); }), {"model_type"});
  expect_parts(usage_error([] { (void)parse_config("{", "c"); }), {"c", "no JSON"});
}

TEST(huggingface_config, nemotron_3_has_latent_experts_and_predicts_further_tokens) {
  const std::string more = R"("hybrid_override_pattern": "M-", "moe_latent_size": 16,
      "num_nextn_predict_layers": 2, "mtp_layers_block_type": ["attention", "moe"])";
  const Config read = config(more);
  const Deck deck = deck_of(read);
  EXPECT_EQ(deck.get<std::int64_t>("model.moe_latent_size"), 16);  // the block has experts
  EXPECT_EQ(deck.get<std::int64_t>("model.mtp_num_layers"), 2);
  EXPECT_EQ(deck.get<std::string>("model.mtp_pattern"), "*E");
  EXPECT_EQ(deck.get<std::int64_t>("model.num_attention_heads"), 4);
  for (const std::string& like : {std::string(), "{" + kSmall + ", " + more + "}"})
    EXPECT_EQ(parse_config(config_text(*read.family, deck, like), "again").keys, read.keys);
  const auto changed = [&](const std::string& override) {
    return Deck::parse(read.deck_text() + "[data]\nsource = \"synthetic\"\n", "c",
                       std::vector<std::string>{override});
  };
  expect_parts(usage_error([&] {
                 (void)config_text(*read.family, changed("model.moe_latent_norm=true"), {});
               }),
               {"moe_latent_norm", "nemotron_h", "false"});
  EXPECT_TRUE(other_than_model(read, changed("model.mtp_loss_scaling_factor=0.1"), "c").empty());
  expect_parts(
      fmt::format("{}",
                  fmt::join(other_than_model(read, changed("model.mtp_num_layers=3"), "c"), "")),
      {"model.mtp_num_layers"});
  // Of one block, whatever its depths.
  const Config one = config(R"("hybrid_override_pattern": "M-", "num_nextn_predict_layers": 1)");
  const Deck shared = Deck::parse(
      one.deck_text() + "[data]\nsource = \"synthetic\"\n", "c",
      std::vector<std::string>{"model.mtp_num_layers=3", "model.mtp_use_repeated_layer=true"});
  EXPECT_TRUE(other_than_model(one, shared, "c").empty());
  EXPECT_NE(config_text(*one.family, shared, {}).find("\"num_nextn_predict_layers\": 1"),
            std::string::npos);
}

TEST(huggingface_config, written_config_says_the_same) {
  const Config read = config(kPattern);
  const std::string text = config_text(*read.family, deck_of(read), {});
  EXPECT_NE(text.find("Infinity\n"), std::string::npos) << text;  // Python's word
  EXPECT_EQ(parse_config(text, "again").keys, read.keys);
  // Another file's other keys stay, and its names of keys are used.
  const std::string like =
      "{" + kSmall + R"(, "bos_token_id": 7, "rms_norm_eps": 1e-6, "layers_block_type": ["moe"]})";
  const std::string kept = config_text(*read.family, deck_of(read), like);
  expect_parts(kept, {"\"bos_token_id\": 7", "linear_attention", "max_position_embeddings"});
  EXPECT_EQ(kept.find("hybrid_override_pattern"), std::string::npos);
  EXPECT_EQ(parse_config(kept, "kept").keys, read.keys);
}

TEST(huggingface_config, a_model_that_a_family_has_not_is_refused) {
  const Config read = config(kPattern);
  const auto changed = [&](const std::string& override) {
    return Deck::parse(read.deck_text() + "[data]\nsource = \"synthetic\"\n", "c",
                       std::vector<std::string>{override});
  };
  const Family& family = *read.family;
  const auto why = [&](const std::string& override) {
    return usage_error([&] { (void)config_text(family, changed(override), {}); });
  };
  expect_parts(why("model.position_embedding=rope"), {"position_embedding", "nemotron_h", "none"});
  expect_parts(why("model.untie_embeddings=false"), {"untie_embeddings"});
  expect_parts(why("model.moe_router_force_load=zipf"), {"moe_router_force_load", "\"none\""});
  expect_parts(why("model.activation=swiglu"), {"activation", "squared_relu"});
  expect_parts(why("model.moe_shared_expert_hidden_size=0"), {"moe_shared_expert", "above 0"});
  EXPECT_EQ(family_of(changed("model.pattern=MM")).model_type, "nemotron_h");
  const Deck llama = changed("model.pattern=*-*-");
  expect_parts(usage_error([&] { (void)family_of(changed("model.moe_score_function=softmax")); }),
               {"moe_score_function", "llama", "mamba2"});
  const std::vector<std::string> differing = other_than_model(read, llama, "c");
  ASSERT_EQ(differing.size(), 1);
  expect_parts(differing[0], {"model.pattern", "M*-E"});
  EXPECT_TRUE(other_than_model(read, changed("model.pattern=M*|-E"), "c").empty());
}

TEST(huggingface_config, errors_of_a_deck_name_the_key_of_config_json) {
  const std::string start = R"("model_type": "llama", "vocab_size": 64, "hidden_size": 32,
    "num_attention_heads": 4, "num_hidden_layers": 3, "intermediate_size": 48)";
  const auto why = [&](const std::string& more) {
    const Config read = config(more, start);
    return usage_error([&] {
      (void)Deck::parse(read.deck_text() + "[data]\nsource = \"synthetic\"\n", "made", {},
                        read.places);
    });
  };
  expect_parts(why(R"("rms_norm_eps": -7.0)"),
               {"c, rms_norm_eps: model.norm_epsilon = -7", "out of range"});
  expect_parts(why(R"("num_key_value_heads": 3)"),
               {"model.num_query_groups = 3 (c, num_key_value_heads)",
                "model.num_attention_heads = 4 (c, num_attention_heads)"});
}

TEST(huggingface_config, llama_is_two_layers_in_one) {
  const std::string start = R"("model_type": "llama", "vocab_size": 64, "hidden_size": 32,
    "num_attention_heads": 4, "num_hidden_layers": 3, "intermediate_size": 48)";
  const Deck deck = deck_of(config(R"("rope_theta": 500000.0)", start));
  EXPECT_EQ(deck.get<std::string>("model.pattern"), "*-*-*-");
  EXPECT_EQ(deck.get<double>("model.rope_theta"), 500000);
  EXPECT_EQ(deck.get<std::int64_t>("model.num_query_groups"), 4);
  EXPECT_EQ(deck.get<std::string>("model.activation"), "swiglu");
  EXPECT_EQ(family_of(deck).model_type, "llama");
  refuse(R"("rope_parameters": {"rope_theta": 1.0, "rope_type": "llama3", "factor": 8.0})",
         {"rope", "llama3"}, start);
  refuse(R"("rope_scaling": {"type": "linear"})", {"rope_scaling", "linear", "llama3"}, start);
  refuse(R"("rope_parameters": {"rope_theta": 1.0, "factor": 8.0})", {"factor", "default"}, start);
  refuse(R"("rope_theta": 1.0, "rope_parameters": {"rope_theta": 2.0})", {"contradicts"}, start);
}

TEST(huggingface_config, llama_slows_long_waves) {
  const std::string start = R"("model_type": "llama", "vocab_size": 64, "hidden_size": 32,
    "num_attention_heads": 4, "num_hidden_layers": 1, "intermediate_size": 48)";
  const std::string scaling = R"("factor": 32.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192, "rope_type": "llama3")";
  const std::string older = "\"rope_theta\": 500000.0, \"rope_scaling\": {" + scaling + "}";
  for (const std::string& text :
       {older, "\"rope_parameters\": {\"rope_theta\": 500000.0, " + scaling + "}"}) {
    const Deck deck = deck_of(config(text, start));
    EXPECT_EQ(deck.get<double>("model.rope_theta"), 500000);
    EXPECT_EQ(deck.get<double>("model.rope_scaling_factor"), 32);
    EXPECT_EQ(deck.get<double>("model.rope_scaling_positions"), 8192);
    const std::string written = config_text(family_of(deck), deck, "{" + text + "}");
    EXPECT_EQ(deck_of(parse_config(written, "c")).text(), deck.text());
    EXPECT_EQ(written.find("rope_scaling") != std::string::npos, text == older);
    EXPECT_TRUE(other_than_model(config(text, start), deck, "c").empty());
  }
  const Deck plain = deck_of(config(R"("rope_theta": 500000.0)", start));
  expect_parts(fmt::format("{}", fmt::join(other_than_model(config(older, start), plain, "c"), "")),
               {"model.rope_scaling_factor"});
}

TEST(huggingface_config, qwen3_norms_heads) {
  const std::string sizes = R"("vocab_size": 64, "hidden_size": 32, "num_attention_heads": 4,
    "num_hidden_layers": 2, "num_key_value_heads": 2, "head_dim": 16)";
  const Deck dense =
      deck_of(config(R"("intermediate_size": 48)", R"("model_type": "qwen3", )" + sizes));
  EXPECT_TRUE(dense.get<bool>("model.qk_layernorm"));
  EXPECT_EQ(dense.get<std::string>("model.pattern"), "*-*-");
  EXPECT_EQ(family_of(dense).model_type, "qwen3");
  const std::string start = R"("model_type": "qwen3_moe", )" + sizes;
  const Deck experts = deck_of(config(R"("num_experts": 16, "moe_intermediate_size": 24)", start));
  EXPECT_EQ(experts.get<std::string>("model.pattern"), "*E*E");
  EXPECT_EQ(experts.get<std::int64_t>("model.num_moe_experts"), 16);
  EXPECT_FALSE(experts.get<bool>("model.moe_norm_topk_prob"));
  EXPECT_EQ(family_of(experts).model_type, "qwen3_moe");
  refuse(R"("use_sliding_window": true)", {"use_sliding_window", "window"}, start);
  refuse(R"("mlp_only_layers": [1])", {"mlp_only_layers", "[1]"}, start);
}

const std::string kHybrid = R"("model_type": "qwen3_5_text", "vocab_size": 64, "hidden_size": 32,
  "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8, "intermediate_size": 48,
  "linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_key_head_dim": 8,
  "linear_value_head_dim": 6, "num_hidden_layers": 4)";

TEST(huggingface_config, qwen3_5_alternates_two_kinds) {
  const Deck deck = deck_of(config("", kHybrid));
  EXPECT_EQ(deck.get<std::string>("model.pattern"), "G-G-G-*-");
  EXPECT_TRUE(deck.get<bool>("model.attention_output_gate"));
  EXPECT_TRUE(deck.get<bool>("model.apply_layernorm_1p"));
  EXPECT_EQ(deck.get<double>("model.rotary_percent"), 0.25);
  EXPECT_EQ(deck.get<std::int64_t>("model.delta_value_head_dim"), 6);
  EXPECT_EQ(family_of(deck).model_type, "qwen3_5_text");
  const auto pattern = [](const std::string& keys) {
    return deck_of(config(keys, kHybrid)).get<std::string>("model.pattern");
  };
  EXPECT_EQ(pattern(R"("full_attention_interval": 2)"), "G-*-G-*-");
  const std::string types =
      R"("layer_types": ["full_attention", "linear_attention", "linear_attention",)"
      R"( "full_attention"])";
  EXPECT_EQ(pattern(types), "*-G-G-*-");
  EXPECT_EQ(pattern(types + R"(, "full_attention_interval": 2)"), "*-G-G-*-");
  refuse(R"("layer_types": ["full_attention"])", {"num_hidden_layers = 4", "contradicts", "1"},
         kHybrid);
  refuse(R"("layer_types": ["attention"])", {"attention", "linear_attention, full_attention"},
         kHybrid);
  refuse(R"("full_attention_interval": 0)", {"full_attention_interval = 0", "1 to 100000"},
         kHybrid);
  refuse(R"("attn_output_gate": false)", {"attn_output_gate", "without an output gate"}, kHybrid);
  refuse("", {"qwen3_5", "qwen3_5_text"}, R"("model_type": "qwen3_5")");
}

TEST(huggingface_config, qwen3_5_turns_a_part_of_a_head) {
  const auto part = [](const std::string& keys) {
    return deck_of(config(keys, kHybrid)).get<double>("model.rotary_percent");
  };
  EXPECT_EQ(part(R"("partial_rotary_factor": 0.5)"), 0.5);
  EXPECT_EQ(part(R"("rope_parameters": {"rope_theta": 1e7, "partial_rotary_factor": 1.0,
                     "mrope_section": [1, 1, 0], "mrope_interleaved": true})"),
            1.0);
  refuse(R"("partial_rotary_factor": 0.5, "rope_parameters": {"partial_rotary_factor": 1.0})",
         {"partial_rotary_factor = 0.5 contradicts rope_parameters"}, kHybrid);
  refuse(R"("rope_parameters": {"partial_rotary_factor": 0.5, "rope_theta": 1e4})",
         {"partial_rotary_factor", "not supported"}, R"("model_type": "llama")");
  Deck other = deck_of(config("", R"("model_type": "llama", "hidden_size": 64,
    "num_attention_heads": 4, "num_hidden_layers": 1)"));
  EXPECT_EQ(other.get<double>("model.rotary_percent"), 1);
}

// What another config.json says in its own way stays as it says it, as long as it holds.
TEST(huggingface_config, qwen3_5_is_written_as_it_was) {
  const std::string rope =
      R"("rope_parameters": {"rope_type": "default", "rope_theta": 10000000,
          "partial_rotary_factor": 0.25, "mrope_section": [1, 1, 0]})";
  for (const std::string& keys :
       {std::string(R"("full_attention_interval": 4, "rope_theta": 10000.0,
                        "partial_rotary_factor": 0.25)"),
        R"("layer_types": ["linear_attention", "full_attention", "linear_attention",
                           "linear_attention"], )" +
            rope,
        rope + R"(, "attn_output_gate": true, "mtp_num_hidden_layers": 1)"}) {
    const std::string like = "{" + kHybrid + ", " + keys + "}";
    const Config read = parse_config(like, "c");
    const auto before = nlohmann::json::parse(like);
    const auto after = nlohmann::json::parse(config_text(*read.family, deck_of(read), like));
    for (const auto& [key, value] : before.items()) EXPECT_EQ(after.at(key), value) << key;
    const bool named =
        keys.find("interval") != std::string::npos || keys.find("layer_types") != std::string::npos;
    EXPECT_EQ(after.contains("layer_types"), before.contains("layer_types") || !named);
    EXPECT_EQ(deck_of(parse_config(after.dump(), "again")).text(), deck_of(read).text());
  }
}

std::vector<Piece> pieces_of(const std::string& name, const std::vector<std::int64_t>& shape,
                             const Family& family, const ModelSizes& sizes) {
  return pieces(family, sizes, name, shape, family.trunks.front());
}

TEST(huggingface_names, nemotron_h) {
  const Config read = config(kPattern);
  const Family& family = *read.family;
  const ModelSizes sizes{.pattern = "M|*-E", .query_width = 64, .key_width = 32};
  const auto qkv = pieces_of("layers.1.attn.qkv.weight", {128, 32}, family, sizes);
  ASSERT_EQ(qkv.size(), 3U);
  EXPECT_EQ(qkv[1].name, "backbone.layers.1.mixer.k_proj.weight");
  EXPECT_EQ(qkv[1].shape, (std::vector<std::int64_t>{32, 32}));
  EXPECT_EQ(qkv[1].begin, 64 * 32);
  const auto conv = pieces_of("layers.0.mamba.conv1d.weight", {128, 4}, family, sizes);
  EXPECT_EQ(conv[0].shape, (std::vector<std::int64_t>{128, 1, 4}));
  const auto experts = pieces_of("layers.3.experts.fc2.weight", {4, 32, 24}, family, sizes);
  ASSERT_EQ(experts.size(), 4U);
  EXPECT_EQ(experts[2].name, "backbone.layers.3.mixer.experts.2.down_proj.weight");
  EXPECT_EQ(experts[2].begin, 2 * 32 * 24);
  const ModelSizes further{.pattern = "M-", .further_pattern = "*E"};
  const auto join = pieces_of("mtp.1.hidden_proj.weight", {2, 2}, family, further);
  ASSERT_EQ(join.size(), 2U);  // a row each, the second half of theirs
  EXPECT_EQ(join[1].name, "mtp.layers.2.eh_proj.weight");
  EXPECT_EQ(join[1].shape, (std::vector<std::int64_t>{2, 4}));
  EXPECT_EQ(join[1].begin, 2);
  EXPECT_EQ(join[1].their_begin, 6);
  EXPECT_EQ(pieces_of("mtp.1.final_norm.weight", {2}, family, further)[0].name,
            "mtp.layers.3.final_layernorm.weight");
  EXPECT_EQ(pieces_of("mtp.layers.3.router.weight", {4, 2}, family, further)[0].name,
            "mtp.layers.3.mixer.gate.weight");
  EXPECT_EQ(pieces_of("output.weight", {64, 32}, family, sizes)[0].name, "lm_head.weight");
  EXPECT_EQ(pieces(family, sizes, "final_norm.weight", {32}, "model.")[0].name,
            "model.norm_f.weight");
  expect_parts(
      usage_error([&] { (void)pieces_of("layers.0.attn.qkv.weight", {1}, family, sizes); }),
      {"nemotron_h", "layers.0.attn.qkv.weight"});
}

std::string text_of(const std::vector<Piece>& all) {
  std::string text;
  for (const Piece& piece : all)
    text += fmt::format("{} {}+{}@{} ", piece.name.substr(piece.name.rfind("proj")), piece.begin,
                        piece.elements, piece.their_begin);
  return text;
}

TEST(huggingface_names, qwen3_next_interleaves_heads) {
  const Family& family = family_of("qwen3_next", "c");
  const ModelSizes sizes{
      .pattern = "GE*E",
      .query_width = 4,
      .key_width = 2,
      .head_dim = 2,
      .delta = {.key_heads = 2, .value_heads = 4, .key_head_dim = 3, .value_head_dim = 1}};
  // Rows of q_proj: query and gate of the first head, then of the second.
  EXPECT_EQ(text_of(pieces_of("layers.2.attn.qkv.weight", {8, 10}, family, sizes)),
            "proj.weight 0+20@0 proj.weight 20+20@40 proj.weight 40+20@0 proj.weight 60+20@0 ");
  const auto gate = pieces_of("layers.2.attn.gate.weight", {4, 10}, family, sizes);
  EXPECT_EQ(text_of(gate), "proj.weight 0+20@20 proj.weight 20+20@60 ");
  EXPECT_EQ(gate[0].name, "model.layers.1.self_attn.q_proj.weight");
  EXPECT_EQ(gate[0].shape, (std::vector<std::int64_t>{8, 10}));
  // Of a key head 3 rows of q, 3 of k, 2 of v, 2 of z; ours are [z | q | k | v | b | a].
  EXPECT_EQ(text_of(pieces_of("layers.0.delta.in_proj.weight", {28, 1}, family, sizes)),
            "proj_qkvz.weight 0+2@8 proj_qkvz.weight 2+2@18 proj_qkvz.weight 4+3@0 "
            "proj_qkvz.weight 7+3@10 proj_qkvz.weight 10+3@3 proj_qkvz.weight 13+3@13 "
            "proj_qkvz.weight 16+2@6 proj_qkvz.weight 18+2@16 proj_ba.weight 20+2@0 "
            "proj_ba.weight 22+2@4 proj_ba.weight 24+2@2 proj_ba.weight 26+2@6 ");
}

TEST(huggingface_names, llama) {
  const Family& family = family_of("llama", "c");
  const ModelSizes sizes{.pattern = "*-*-", .query_width = 32, .key_width = 16};
  const auto fc1 = pieces_of("layers.3.mlp.fc1.weight", {96, 32}, family, sizes);
  ASSERT_EQ(fc1.size(), 2U);
  EXPECT_EQ(fc1[0].name, "model.layers.1.mlp.gate_proj.weight");
  EXPECT_EQ(fc1[1].name, "model.layers.1.mlp.up_proj.weight");
  EXPECT_EQ(fc1[1].begin, 48 * 32);
  EXPECT_EQ(pieces_of("layers.2.norm.weight", {32}, family, sizes)[0].name,
            "model.layers.1.input_layernorm.weight");
  EXPECT_EQ(pieces_of("layers.3.norm.weight", {32}, family, sizes)[0].name,
            "model.layers.1.post_attention_layernorm.weight");
  EXPECT_TRUE(is_left_out(family, "model.layers.0.self_attn.rotary_emb.inv_freq"));
  expect_parts(usage_error([&] { (void)blocks_of(family, "*-*", "here"); }), {"here", "*-"});
}

}  // namespace
}  // namespace stowage::inputs::huggingface
