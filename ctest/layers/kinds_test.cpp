// What the row of a kind of layer says is what its mixer does, for every kind that this program
// has: one of them is its own (toy_mixer.cpp).
#include <gtest/gtest.h>

#include <array>
#include <fstream>
#include <iterator>
#include <set>

#include "execution/error.hpp"
#include "inputs/data/run_data.hpp"
#include "layers/recording/kind.hpp"
#include "run/judge/gradient_slice.hpp"
#include "tiny_model.hpp"

namespace stowage::ctest {
namespace {

using Names = std::set<std::string, std::less<>>;

inputs::Deck deck_of(const std::string& pattern, std::vector<std::string> overrides = {}) {
  overrides.insert(overrides.end(), {"data.source=synthetic", "model.pattern=\"" + pattern + "\""});
  return inputs::Deck::parse("", "kinds.toml", overrides);
}

TEST(kinds, a_test_has_one_of_its_own) {
  EXPECT_EQ(every_kind(), "M*-EGA");
  EXPECT_EQ(inputs::recurrent_layers("*A|M"), "Mamba-2 and moving average");
  EXPECT_EQ(inputs::recurrent_layers("*-E"), "");
}

TEST(kinds, layers_save_what_their_modules_name_in_their_scopes) {
  for (const layers::Kind* kind : layers::all_kinds()) {
    forecast::TrainerOptions options =
        tiny_options(std::string(1, kind->letter), execution::Dtype::fp32);
    options.model.moe.latent = 8;
    const forecast::TrainerPlan plan(options);
    const execution::Program& program = plan.training().front()->recorded.program;
    Names named{std::string(kind->norm_module), std::string(kind->input_module)}, saved, scopes;
    for (const inputs::Module& module : kind->modules)
      if (module.parts.empty()) named.emplace(module.name);
    for (const execution::TensorInfo& info : program.tensors())
      if (!info.module.empty()) saved.insert(info.module);
    EXPECT_EQ(saved, named) << kind->name;
    for (const execution::Scope& scope : program.scopes()) scopes.insert(scope.kind);
    EXPECT_TRUE(scopes.contains(kind->scope)) << kind->name;
    EXPECT_TRUE(kind->inner_scope.empty() || scopes.contains(kind->inner_scope)) << kind->name;
  }
}

// All of Stowage's own go on by one token of a sequence; one that cannot is refused by its letter.
TEST(kinds, text_comes_of_those_with_a_form_for_one_more_token) {
  for (const layers::Kind* kind : layers::all_kinds()) {
    forecast::TrainerOptions options =
        tiny_options(std::string(1, kind->letter), execution::Dtype::fp32);
    options.state.weights_only = true;
    options.evaluation_microbatches = 0;
    options.decode = {2, 8};
    try {
      const forecast::TrainerPlan plan(options);
      EXPECT_TRUE(plan.decode() != nullptr) << kind->name;
      EXPECT_NE(kind->letter, 'A');
      plan.require_proven();
    } catch (const execution::Error& error) {
      EXPECT_EQ(kind->letter, 'A') << error.what();
      EXPECT_EQ(error.exit(), execution::Exit::usage);
      EXPECT_STREQ(error.what(),
                   "model.pattern: layer 0 is 'A' (moving average), which has no form for one more "
                   "token of a sequence");
    }
  }
}

TEST(kinds, a_name_of_several_names_others) {
  for (const inputs::Module& module : inputs::saved_modules())
    for (const std::string_view part : module.parts) {
      const std::vector<std::string> all = module_names();
      EXPECT_NE(std::ranges::find(all, part), all.end()) << module.name;
    }
}

TEST(kinds, finite_differences_agree_with_the_slim_form_of_each) {
  for (const std::string& pattern : kind_patterns()) {
    const auto backend = execution::make_host_backend();
    run::GradientSlice slice(deck_of(pattern), *backend, execution::Dtype::fp64);
    slice.backward();
    const auto found = slice.compare();
    EXPECT_LE(found.error, 1) << pattern << ": " << found.parameter;
    EXPECT_GT(found.error, 0) << pattern;
  }
}

// Two groups where there are more, with as many heads in each as before.
TEST(kinds, a_slim_form_has_two_groups_at_most) {
  const auto slim = [](char letter, layers::ModelConfig model) {
    layers::kind_of(model, letter).slim(model);
    return model;
  };
  for (const auto& [groups, heads, slim_groups, slim_heads] :
       {std::array{1, 5, 1, 5}, {2, 6, 2, 6}, {3, 9, 2, 6}, {4, 20, 2, 10}}) {
    layers::ModelConfig model;
    model.mamba.groups = model.attention.kv_heads = model.delta.key_heads = groups;
    model.mamba.heads = model.attention.heads = model.delta.value_heads = heads;
    model.mamba.dt_min = 0.5, model.mamba.dt_max = 0.6;
    const layers::ModelConfig mamba = slim('M', model), attention = slim('*', model),
                              delta = slim('G', model);
    EXPECT_EQ(mamba.mamba.groups, slim_groups);
    EXPECT_EQ(mamba.mamba.heads, slim_heads);
    EXPECT_EQ(mamba.mamba.dt_min, layers::ModelConfig{}.mamba.dt_min);
    EXPECT_EQ(mamba.mamba.dt_max, layers::ModelConfig{}.mamba.dt_max);
    EXPECT_EQ(attention.attention.kv_heads, slim_groups);
    EXPECT_EQ(attention.attention.heads, slim_heads);
    EXPECT_EQ(delta.delta.key_heads, slim_groups);
    EXPECT_EQ(delta.delta.value_heads, slim_heads);
  }
}

TEST(kinds, a_slim_form_has_narrow_experts_and_enough_of_them) {
  for (const auto& [experts, topk, groups, slim_experts] :
       {std::array{4, 1, 1, 2}, {8, 2, 1, 4}, {8, 2, 2, 8}, {16, 3, 2, 12}, {2, 1, 1, 2}}) {
    layers::ModelConfig model;
    model.moe.experts = experts, model.moe.topk = topk, model.moe.groups = groups;
    model.moe.ffn = 65, model.moe.shared_ffn = 63, model.moe.latent = 100;
    model.moe.aux_coeff = 1, model.moe.z_coeff = 2, model.moe.bias_rate = 3;
    layers::kind_of(model, 'E').slim(model);
    EXPECT_EQ(model.moe.experts, slim_experts);
    EXPECT_EQ(model.moe.ffn, 64);
    EXPECT_EQ(model.moe.shared_ffn, 63);
    EXPECT_EQ(model.moe.latent, 64);
    EXPECT_EQ(model.moe.aux_coeff + model.moe.z_coeff + model.moe.bias_rate, 0);
  }
  layers::ModelConfig model;
  for (const auto& [ffn, slim_ffn] : {std::pair{127, 127}, {129, 128}}) {
    model.mlp.ffn = ffn;
    layers::kind_of(model, '-').slim(model);
    EXPECT_EQ(model.mlp.ffn, slim_ffn);
  }
}

TEST(kinds, finite_differences_agree_with_gated_forms) {
  const std::vector<std::string> gates = {
      "model.attention_output_gate=true",       "model.qk_layernorm=true",
      "model.position_embedding=rope",          "model.rotary_percent=0.25",
      "model.apply_layernorm_1p=true",          "model.moe_shared_expert_gate=true",
      "model.moe_shared_expert_hidden_size=64", "model.activation=swiglu"};
  for (const auto& deck : {deck_of("G-*E", gates), deck_of("G", {"model.delta_decay=channel"})}) {
    const auto backend = execution::make_host_backend();
    run::GradientSlice slice(deck, *backend, execution::Dtype::fp64);
    slice.backward();
    const auto found = slice.compare();
    EXPECT_LE(found.error, 1) << found.parameter;
    EXPECT_GT(found.error, 0);
  }
}

TEST(kinds, finite_differences_agree_with_latent_experts_and_further_tokens) {
  const auto backend = execution::make_host_backend();
  for (const auto& [shared, untied] : {std::pair{"false", "true"}, {"true", "false"}}) {
    run::GradientSlice slice(
        deck_of("-", {"model.moe_latent_size=32", "model.moe_latent_norm=true",
                      "model.moe_shared_expert_hidden_size=64", "model.mtp_num_layers=2",
                      "model.mtp_pattern=E", "model.mtp_loss_scaling_factor=0.7",
                      std::string("model.mtp_use_repeated_layer=") + shared,
                      std::string("model.untie_embeddings=") + untied}),
        *backend, execution::Dtype::fp64);
    slice.backward();
    const auto found = slice.compare();
    EXPECT_LE(found.error, 1) << shared << untied << found.parameter;
    EXPECT_GT(found.error, 0);
  }
}

TEST(kinds, keys_of_latent_experts_and_further_tokens_are_refused_by_name) {
  const auto refusal = [](std::vector<std::string> overrides) -> std::string {
    try {
      (void)deck_of("E", std::move(overrides));
    } catch (const execution::Error& error) {
      return error.what();
    }
    return "";
  };
  const auto expect = [&](std::vector<std::string> overrides,
                          std::initializer_list<std::string_view> parts) {
    const std::string text = refusal(std::move(overrides));
    for (const std::string_view part : parts)
      EXPECT_NE(text.find(part), std::string::npos) << part << " is not in: " << text;
  };
  expect({"model.moe_latent_norm=true"}, {"model.moe_latent_norm", "model.moe_latent_size"});
  expect({"model.moe_latent_size=129"}, {"model.moe_latent_size = 129", "model.hidden_size"});
  expect({"model.mtp_num_layers=1"}, {"model.mtp_num_layers = 1", "model.mtp_pattern"});
  expect({"model.mtp_pattern=E"}, {"model.mtp_pattern", "model.mtp_num_layers above 0"});
  expect({"model.mtp_num_layers=1", "model.mtp_pattern=*|E"},
         {"model.mtp_pattern", "letter '|' at position 2", "* attention"});
  expect({"eval.mtp_loss=true"}, {"eval.mtp_loss", "model.mtp_num_layers"});
  EXPECT_EQ(refusal({"model.mtp_num_layers=1", "model.mtp_pattern=E", "eval.mtp_loss=true"}), "");
}

TEST(kinds, no_state_goes_from_one_document_to_the_next) {
  for (const layers::Kind* kind : layers::all_kinds()) {
    const auto refusal = [&](const char* packing) -> std::string {
      try {
        (void)inputs::open_data(
            deck_of(std::string(1, kind->letter), {packing, "data.synthetic_document_length=100"}));
      } catch (const execution::Error& error) {
        return error.what();
      }
      return "";
    };
    EXPECT_EQ(refusal("data.packing=documents"), "") << kind->name;
    const std::string none = refusal("data.packing=none");
    EXPECT_EQ(none.find(fmt::format("state of the {} layers", kind->name)) != std::string::npos,
              kind->recurrent)
        << kind->name << ": " << none;
  }
}

/// The table of docs/guides/memory.md; names with the same text share a line.
std::string page_of_modules() {
  std::string page, names;
  const std::vector<inputs::Module> all = inputs::saved_modules();
  for (std::size_t i = 0; i < all.size(); ++i) {
    const inputs::Module& one = all[i];
    if (one.name.starts_with("average")) continue;  // this test's own
    names += fmt::format("{}`{}`", names.empty() ? "" : ", ", one.name);
    const auto next = std::find_if(all.begin() + static_cast<std::ptrdiff_t>(i) + 1, all.end(),
                                   [](const auto& m) { return !m.name.starts_with("average"); });
    if (next != all.end() && next->tensors == one.tensors && next->again_from == one.again_from)
      continue;
    std::string from(one.again_from);
    if (one.name.ends_with("_norm")) from = "never: all else starts here";
    page += fmt::format("| {} | {} |{}{} |\n", names, one.tensors, from.empty() ? "" : " ", from);
    names.clear();
  }
  return page;
}

TEST(kinds, the_page_of_module_names_has_them_all) {
  std::ifstream file(STOWAGE_SOURCE "/docs/guides/memory.md");
  const std::string page{std::istreambuf_iterator<char>(file), {}};
  EXPECT_NE(page.find("| --- | --- | --- |\n" + page_of_modules()), std::string::npos)
      << page_of_modules();
}

}  // namespace
}  // namespace stowage::ctest
