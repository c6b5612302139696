#include "inputs/deck/deck.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include <regex>
#include <set>

#include "ctest/inputs/support.hpp"
#include "inputs/deck/foreign_keys.hpp"
#include "inputs/deck/help.hpp"
#include "layers/recording/precision.hpp"

namespace stowage::inputs {
namespace {

using testing::expect_parts;
using testing::TemporaryFolder;
using testing::usage_error;

constexpr std::string_view kSmall = "[model]\npattern = \"M*-E\"\n[data]\nsource = \"synthetic\"\n";

Deck small(std::vector<std::string> overrides = {}) {
  return Deck::parse(kSmall, "small.toml", overrides);
}

std::string error_of(const std::string& text) {
  return usage_error([&] { Deck::parse(std::string(kSmall) + text, "small.toml"); });
}

std::string error_of_override(const std::string& text) {
  return usage_error([&] { small({text}); });
}

TEST(deck, registry_rows_are_sound) {
  std::set<std::string_view> keys;
  for (const Parameter& row : registry()) {
    EXPECT_TRUE(keys.insert(row.key).second) << row.key;
    EXPECT_EQ(find(row.key), &row);
    EXPECT_FALSE(row.help.empty()) << row.key;
    EXPECT_TRUE(row.help.ends_with('.')) << row.key;
    if (const auto* number = std::get_if<std::int64_t>(&row.fallback)) {
      EXPECT_TRUE(row.range.contains(static_cast<double>(*number))) << row.key;
    }
    if (const auto* real = std::get_if<double>(&row.fallback)) {
      EXPECT_TRUE(row.range.contains(*real)) << row.key;
    }
    const bool known = std::ranges::any_of(
        sections(), [&](const Section& section) { return section.name == row.section(); });
    EXPECT_TRUE(known) << row.key;
  }
}

TEST(deck, later_assignments_win) {
  const TemporaryFolder folder;
  std::filesystem::create_directory(folder / "base");
  folder.write("base/deep.toml", "[optim]\nlr = 1.0\nmin_lr = 0.5\nclip_grad = 3.0\n");
  folder.write("base/base.toml", "include = [\"deep.toml\"]\n[optim]\nlr = 0.75\n");
  const std::string path =
      folder.write("top.toml", "include = \"base/base.toml\"\n" + std::string(kSmall) +
                                   "[optim]\nclip_grad = 2\n");
  const std::vector<std::string> overrides = {"run.steps=7", "run.steps=9", "run.name=3"};
  const Deck deck = Deck::load(path, overrides);
  EXPECT_EQ(deck.get<double>("optim.min_lr"), 0.5);
  EXPECT_EQ(deck.get<double>("optim.lr"), 0.75);
  EXPECT_EQ(deck.get<double>("optim.clip_grad"), 2.0);
  EXPECT_EQ(deck.get<std::int64_t>("run.steps"), 9);
  EXPECT_EQ(deck.get<std::string>("run.name"), "3");
  EXPECT_EQ(deck.where("optim.clip_grad"), path + ":7");
  EXPECT_TRUE(deck.where("optim.lr").ends_with("base.toml:3")) << deck.where("optim.lr");
  EXPECT_EQ(deck.where("run.steps"), "command line");
  EXPECT_EQ(deck.where("run.seed"), "default");
  expect_parts(deck.given(), {"lr = 0.75", "# override: run.steps=9", "top.toml"});
}

TEST(deck, overrides_of_every_type) {
  const Deck deck =
      small({"execution.audit=true", "optim.lr=1", "optim.min_lr=1e-5", "run.output=/tmp/a b.txt",
             "offload.modules=core_attn,moe_act", "recompute.modules=[\"mlp_act\"]",
             "graphs.max_packed_seqs=[16, 64]", "offload.device_budget_bytes=2 GiB",
             "expects.final_loss=[1, 2]", "graphs.scopes="});
  EXPECT_TRUE(deck.get<bool>("execution.audit"));
  EXPECT_EQ(deck.get<double>("optim.lr"), 1.0);
  EXPECT_EQ(deck.get<std::string>("run.output"), "/tmp/a b.txt");
  using Words = std::vector<std::string>;
  EXPECT_EQ(deck.get<Words>("offload.modules"), (Words{"core_attn", "moe_act"}));
  EXPECT_EQ(deck.get<Words>("recompute.modules"), Words{"mlp_act"});
  EXPECT_EQ(deck.get<Words>("graphs.scopes"), Words{});
  EXPECT_EQ(deck.get<std::vector<std::int64_t>>("graphs.max_packed_seqs"),
            (std::vector<std::int64_t>{16, 64}));
  EXPECT_EQ(deck.get<std::int64_t>("offload.device_budget_bytes"), std::int64_t{2} << 30);
  EXPECT_EQ(
      small({"graphs.max_packed_seqs=8"}).get<std::vector<std::int64_t>>("graphs.max_packed_seqs"),
      std::vector<std::int64_t>{8});
}

TEST(deck, retired_keys_are_left_out_of_stored_decks_alone) {
  const std::string old = std::string(kSmall) + "[machine]\ncopy_slowdown = 1.5\n";
  const std::vector<std::string> overrides = {"machine.h2d_slowdown_memory=1.25"};
  const Deck deck = Deck::parse_stored(old, "old.h5", overrides);
  EXPECT_EQ(deck.get<double>("machine.h2d_slowdown_memory"), 1.25);
  EXPECT_EQ(deck.get<double>("machine.d2h_slowdown_memory"), 0.0);
  EXPECT_EQ(deck.text().find("copy_slowdown"), std::string::npos);
  ASSERT_EQ(deck.remarks().size(), 1U);
  expect_parts(deck.remarks()[0],
               {"old.h5:", "machine.copy_slowdown", "machine.d2h_slowdown_arithmetic"});
  EXPECT_EQ(Deck::parse_stored(old, "old.h5").numerics_sha256(), small().numerics_sha256());
  expect_parts(usage_error([&] { Deck::parse(old, "old.toml"); }),
               {"old.toml:", "machine.copy_slowdown", "machine.h2d_slowdown_memory"});
  expect_parts(error_of_override("machine.copy_slowdown=2"), {"machine.d2h_slowdown_memory"});
}

TEST(deck, renamed_keys_carry_their_value_over) {
  const std::string old =
      std::string(kSmall) + "[offload]\nkeep_unhidden = false\nberths = false\n";
  const auto expect_off = [](const Deck& deck, std::size_t remarks) {
    EXPECT_FALSE(deck.get<bool>("offload.keep_exposed"));
    EXPECT_FALSE(deck.get<bool>("offload.reuse_gradient_memory"));
    EXPECT_EQ(deck.text().find("unhidden"), std::string::npos);
    EXPECT_EQ(deck.text().find("berths"), std::string::npos);
    EXPECT_EQ(deck.remarks().size(), remarks);
  };
  const Deck stored = Deck::parse_stored(old, "old.h5");
  expect_off(stored, 2);
  expect_parts(stored.remarks()[0],
               {"old.h5:", "offload.keep_unhidden is now offload.keep_exposed"});
  const std::vector<std::string> again = {"offload.berths=false"};  // remarked once
  expect_off(Deck::parse(old, "old.toml", again), 2);
  expect_off(small({"offload.gradient_memory=false", "offload.keep_unhidden=false"}), 2);
  expect_off(small({"offload.reuse_gradient_memory=false", "offload.keep_exposed=false"}), 0);
  expect_parts(error_of_override("offload.berths=3"), {"offload.reuse_gradient_memory = 3"});
}

// Earlier versions took a path that synthetic tokens do not read: what they stored is read on.
TEST(deck, stored_paths_that_were_not_read_are_left_out) {
  const std::string old = std::string(kSmall) + "path = \"a.txt\"\n";
  EXPECT_EQ(Deck::parse_stored(old, "old.h5").get<std::string>("data.path"), "");
  expect_parts(usage_error([&] { Deck::parse(old, "old.toml"); }),
               {"data.path = \"a.txt\" (old.toml:5)", "data.source = \"synthetic\" (old.toml:4)"});
}

TEST(deck, a_factor_may_be_unknown_but_not_below_one) {
  EXPECT_EQ(small({"machine.d2h_slowdown_memory=0"}).get<double>("machine.d2h_slowdown_memory"), 0);
  EXPECT_EQ(small({"machine.d2h_slowdown_memory=1"}).get<double>("machine.d2h_slowdown_memory"), 1);
  for (const char* value : {"0.5", "-1", "nan"})
    expect_parts(error_of_override(std::string("machine.d2h_slowdown_memory=") + value),
                 {"{0} or [1, inf)"});
}

// The resolved deck is a valid deck that resolves to itself.
TEST(deck, text_is_a_fixed_point) {
  const Deck deck = small({"optim.lr=0.00031", "run.name=with \"quotes\"", "model.mamba_dt_max=inf",
                           "expects.loss_at_100=[3.9, 4.1]"});
  const Deck again = Deck::parse(deck.text(), "resolved");
  EXPECT_EQ(again.text(), deck.text());
  EXPECT_EQ(again.sha256(), deck.sha256());
  for (const Deck::Row& row : again.rows()) EXPECT_FALSE(row.is_default) << row.key;
}

TEST(deck, derived_values) {
  const Deck deck = small({"model.hidden_size=256", "run.steps=55"});
  const auto number = [&](std::string_view key) { return deck.get<std::int64_t>(key); };
  EXPECT_EQ(number("model.num_query_groups"), 4);
  EXPECT_EQ(number("model.head_dim"), 64);
  EXPECT_EQ(number("model.ffn_hidden_size"), 1024);
  EXPECT_EQ(number("model.moe_ffn_hidden_size"), 1024);
  EXPECT_EQ(number("model.mamba_num_heads"), 8);
  EXPECT_EQ(number("optim.decay_steps"), 55);
  EXPECT_EQ(number("optim.wsd_decay_steps"), 6);
  EXPECT_EQ(deck.where("model.head_dim"), "derived");
}

TEST(deck, identities) {
  EXPECT_NE(small().sha256(), small({"run.name=other"}).sha256());
  EXPECT_EQ(small().numerics_sha256(), small({"run.name=other"}).numerics_sha256());
  EXPECT_EQ(small().numerics_sha256(), small({"offload.fraction=0.5"}).numerics_sha256());
  EXPECT_NE(small().numerics_sha256(), small({"optim.adam_beta2=0.9"}).numerics_sha256());
  EXPECT_NE(small().numerics_sha256(), small({"run.seed=1"}).numerics_sha256());
  // The schedule ends at run.steps, so a shorter run is another one, unless the end is given.
  EXPECT_NE(small().numerics_sha256(), small({"run.steps=5"}).numerics_sha256());
  EXPECT_EQ(
      small({"optim.decay_steps=50"}).numerics_sha256(),
      small({"optim.decay_steps=50", "run.steps=5", "optim.wsd_decay_steps=5"}).numerics_sha256());
}

TEST(deck, expectations) {
  const Deck deck = small({"expects.val_loss_at_200=[1.5, 2]", "expects.final_grad_norm=[0, 9]"});
  const std::vector<Expectation> all = deck.expectations();
  ASSERT_EQ(all.size(), 2U);
  EXPECT_EQ(all[0].quantity, "grad_norm");
  EXPECT_EQ(all[0].step, -1);
  EXPECT_EQ(all[1].quantity, "val_loss");
  EXPECT_EQ(all[1].step, 200);
  EXPECT_EQ(all[1].low, 1.5);
  EXPECT_EQ(all[1].high, 2.0);
}

// A band is what a file's own numbers give: who changes them has no band, who changes a path has.
TEST(deck, expectations_hold_for_what_the_file_computes) {
  const auto count = [](const std::vector<std::string>& overrides) {
    const std::string text = std::string(kSmall) + "[expects]\nloss_at_3 = [1, 2]\n";
    return Deck::parse(text, "small.toml", overrides).expectations().size();
  };
  EXPECT_EQ(count({}), 1U);
  EXPECT_EQ(count({"run.output=x.h5", "offload.policy=auto", "execution.backend=host"}), 1U);
  EXPECT_EQ(count({"run.seed=99"}), 0U);
  EXPECT_EQ(count({"model.moe_router_force_load=balanced"}), 0U);
  EXPECT_EQ(count({"run.steps=7"}), 0U);  // the schedule of the learning rate ends there
  EXPECT_EQ(count({"optim.lr=0.5", "expects.final_loss=[0, 9]"}), 1U);
}

TEST(deck, wrong_type_of_the_caller_is_our_mistake) {
  const Deck deck;
  EXPECT_THROW(deck.get<double>("run.steps"), execution::Error);
  EXPECT_THROW(deck.value("run.stepz"), execution::Error);
}

TEST(deck_errors, unknown_keys) {
  expect_parts(error_of("[optim]\n\nlrr = 1\n"), {"small.toml:7", "'optim.lrr'", "'optim.lr'"});
  expect_parts(error_of_override("train.lr=1"), {"command line", "'train.lr'", "'optim.lr'"});
  expect_parts(error_of_override("modle.hidden_size=1"),
               {"no section [modle]", "'model.hidden_size'"});
  expect_parts(error_of_override("seed=1"), {"unknown key 'seed'", "'run.seed'"});
  expect_parts(error_of("[expects]\nlss_at_3 = [0, 1]\n"), {"expects.lss_at_3", "loss_at_<step>"});
}

TEST(deck_errors, names_of_others_are_translated) {
  expect_parts(error_of("[train]\nnum_layers = 12\n"), {"train.num_layers", "model.pattern"});
  expect_parts(error_of_override("model.n_embd=768"), {"write model.hidden_size"});
  expect_parts(error_of_override("optim.learning_rate=1"), {"write optim.lr"});
  expect_parts(error_of_override("--micro-batch"), {"section.key=value"});
  expect_parts(error_of_override("Max-Grad-Norm=1"), {"write optim.clip_grad"});
  expect_parts(error_of_override("train.batch_size=8"), {"train.global_batch_size"});
  expect_parts(error_of_override("include=a.toml"), {"top of a deck file"});
}

// The keys in an answer are those that the registry has now.
TEST(deck_errors, every_name_of_others_has_an_answer_whose_keys_exist) {
  const std::regex key("[a-z]+\\.[a-z][a-z0-9_]*");
  for (const std::string_view name : foreign_keys()) {
    const std::string answer(foreign_key(name));
    EXPECT_FALSE(name.empty() || answer.empty()) << name;
    EXPECT_FALSE(answer.starts_with("write ") && !std::regex_search(answer, key)) << answer;
    for (std::sregex_iterator at(answer.begin(), answer.end(), key), end; at != end; ++at)
      EXPECT_NE(find(at->str()), nullptr) << name << ": " << answer;
  }
  EXPECT_EQ(foreign_key("model.Initializer-Range"), "write model.init_std");
}

TEST(deck_errors, far_neighbours_are_not_named) {
  for (const char* text : {"execution.gadget=1", "model.frobnicate=1", "x=1"}) {
    const std::string message = error_of_override(text);
    EXPECT_EQ(message.find("nearest"), std::string::npos) << message;
    expect_parts(message, {"--help lists all keys"});
  }
}

TEST(deck_errors, all_mistakes_are_told_at_once) {
  expect_parts(error_of("[optim]\nlrr = 1\nclip_grad = \"no\"\n[train]\nn_layer = 3\n"),
               {"3 mistakes", "small.toml:6", "'optim.lr'", "clip_grad", "model.pattern"});
  const std::vector<std::string> overrides = {"train.lr=1", "run.steps=-1"};
  const std::string message =
      usage_error([&] { Deck::parse("[modle]\nhidden_size = 1\n", "a.toml", overrides); });
  expect_parts(message, {"3 mistakes", "a.toml:2", "'train.lr'", "run.steps = -1"});
  std::string many = "[run]\n";
  for (int i = 0; i < 50; ++i) many += "key" + std::to_string(i) + " = 1\n";
  expect_parts(usage_error([&] { Deck::parse(many, "a.toml"); }), {"50 mistakes", "and 30 more"});
}

TEST(deck_errors, sections_without_a_key_are_known) {
  expect_parts(error_of("[optmi]\n"), {"unknown section [optmi]", "[optim]"});
  EXPECT_NO_THROW(Deck::parse(std::string(kSmall) + "[optim]\n", "a.toml"));
}

TEST(deck_errors, deep_keys) {
  std::string deep;
  for (int i = 0; i < 300000; ++i) deep += "a.";
  for (const std::string& text :
       {deep + "a = 1\n", "[" + deep + "a]\n", "x = {" + deep + "a = 1}\n"})
    expect_parts(usage_error([&] { Deck::parse(text, "deep.toml"); }),
                 {"deep.toml:1", "100 parts"});
  const std::string behind =
      "[run]\nname = \"a\\\\\"\noutput = \"\"\"\n\" \n\"\"\"\n[" + deep + "a]\n";
  expect_parts(usage_error([&] { Deck::parse(behind, "deep.toml"); }),
               {"deep.toml:6", "100 parts"});
  const std::string dots(200, '.');
  for (const char* quoted :
       {R"("\"{}")", R"('{}"')", "\"\"\"\n\\\"\"{}\n\"\"\"\"", "'''\n'{}\n'''"})
    EXPECT_NO_THROW(Deck::parse(
        std::string(kSmall) + "[run]\noutput = " + fmt::format(fmt::runtime(quoted), dots) + "\n",
        "a.toml"))
        << quoted;
  EXPECT_NO_THROW(Deck::parse(
      std::string(kSmall) + "# " + dots + "\n[run]\noutput = \"" + dots + "\"\n", "a.toml"));
}

TEST(deck_errors, numbers_that_fp32_does_not_have) {
  expect_parts(error_of_override("model.norm_epsilon=1e-320"), {"model.norm_epsilon", "0 in fp32"});
  expect_parts(error_of_override("optim.adam_eps=1e-60"), {"optim.adam_eps", "0 in fp32"});
  const std::vector<std::string> fp64 = {"train.dtype=fp64", "model.norm_epsilon=1e-60"};
  EXPECT_NO_THROW(small(fp64));
  expect_parts(error_of_override("model.vocab_size=1"), {"model.vocab_size", "[2, "});
}

TEST(deck_errors, wrong_types) {
  expect_parts(error_of("[train]\nseq_length = \"long\"\n"),
               {"small.toml:6", "train.seq_length = \"long\"", "an integer", "not a string"});
  expect_parts(error_of("[optim]\nlr = true\n"), {"a number", "not true or false"});
  expect_parts(error_of("[execution]\naudit = 1\n"), {"true or false", "not an integer"});
  expect_parts(error_of("[run]\nsteps = 1.5\n"), {"an integer", "not a number"});
  expect_parts(error_of("[offload]\nmodules = [1]\n"), {"a list of", "not a list of integers"});
  expect_parts(error_of("[offload]\nmin_tensor_bytes = \"many\"\n"), {"64 GiB"});
  expect_parts(error_of("[run]\nsteps = 1979-05-27\n"), {"small.toml:6", "run.steps must be"});
  expect_parts(error_of("[run.deeper]\nsteps = 1\n"), {"run.deeper must be"});
  expect_parts(error_of("[expects]\nfinal_loss = 3\n"), {"a band [low, high]"});
  expect_parts(error_of("[expects]\nfinal_loss = [3, 2]\n"), {"a band [low, high]"});
}

TEST(deck_errors, out_of_range) {
  expect_parts(error_of("[run]\nsteps = -1\n"),
               {"small.toml:6", "run.steps = -1 is out of range", "[0, 1000000000000]"});
  expect_parts(error_of_override("data.held_out_fraction=1"), {"[0, 1)"});
  expect_parts(error_of_override("offload.fraction=1.01"), {"[0, 1]"});
  expect_parts(error_of_override("optim.adam_eps=0"), {"(0, inf)"});
  expect_parts(error_of_override("optim.lr=nan"), {"optim.lr = nan"});
  expect_parts(error_of_override("graphs.max_packed_seqs=[4, 0]"), {"[1, 2147483647]"});
  expect_parts(error_of_override("parallel.expert_capacity=[1.5, 0]"),
               {"parallel.expert_capacity = [1.5, 0.0]", "list of numbers in (0, inf)"});
  expect_parts(error_of_override("offload.min_tensor_bytes=-1"), {"out of range"});
  expect_parts(error_of_override("model.hidden_size=0"), {"model.hidden_size = 0"});
}

// What a layer holds as an int must not become another number on the way there.
TEST(deck_errors, integers_beyond_an_int) {
  for (const char* key :
       {"model.num_attention_heads", "model.num_query_groups", "model.head_dim",
        "model.hidden_size", "model.mamba_num_heads", "model.mamba_head_dim",
        "model.mamba_num_groups", "model.mamba_state_dim", "model.mamba_chunk_size",
        "model.num_moe_experts", "model.moe_router_topk", "model.moe_num_groups",
        "train.global_batch_size", "train.micro_batch_size", "train.seq_length",
        "offload.max_inflight", "graphs.warmup_steps", "execution.ring_slots", "parallel.data"})
    for (const char* value : {"2147483648", "4294967300", "9223372036854775807", "-2147483649"})
      expect_parts(error_of_override(std::string(key) + "=" + value),
                   {key, value, "out of range", "2"});
}

TEST(registry, every_integer_has_an_end) {
  for (const Parameter& row : registry()) {
    const bool integer = std::holds_alternative<std::int64_t>(row.fallback) ||
                         std::holds_alternative<std::vector<std::int64_t>>(row.fallback);
    const bool seed = row.key == "run.seed" || row.key == "execution.delay_seed";
    if (!integer || seed) continue;
    EXPECT_LT(row.range.high, 0x1p53) << row.key;  // what a double holds exactly
    EXPECT_GE(row.range.low, -1) << row.key;
  }
}

TEST(registry, infinity_is_meant_in_few_places) {
  int meant = 0;
  for (const Parameter& row : registry()) {
    const auto* real = std::get_if<double>(&row.fallback);
    if (real == nullptr) continue;
    EXPECT_FALSE(row.range.contains(std::nan(""))) << row.key;
    if (row.range.contains(kInfinity)) {
      ++meant;
      EXPECT_EQ(*real, kInfinity) << row.key;  // its default says what it means
    }
  }
  EXPECT_EQ(meant, 4);
  for (const char* text : {"optim.lr=inf", "optim.weight_decay=inf", "model.rope_theta=inf",
                           "model.moe_aux_loss_coeff=inf", "machine.h2d_bytes_per_s=inf",
                           "parallel.collective_patience_s=inf", "machine.d2h_slowdown_memory=inf"})
    expect_parts(error_of_override(text), {"inf", "out of range"});
  expect_parts(error_of("[expects]\nfinal_loss = [0, inf]\n"), {"finite"});
}

TEST(deck_errors, texts_that_are_no_text) {
  expect_parts(error_of("[run]\nname = \"a\\u0000b\"\n"), {"run.name", "value 0"});
  for (const char* name : {"\xff", "\xc3", "\xed\xa0\x80", "\xc0\xaf", "\xf4\x90\x80\x80"})
    expect_parts(error_of_override(std::string("run.name=") + name), {"run.name", "not UTF-8"});
}

TEST(deck_errors, unknown_words) {
  expect_parts(error_of_override("train.dtype=fp8"),
               {"train.dtype = \"fp8\"", "\"fp32\", \"bf16\", \"fp64\"", "nearest"});
  expect_parts(error_of_override("offload.modules=core_atn"), {"nearest: \"core_attn\""});
  expect_parts(error_of_override("graphs.scopes=moe,mambo"), {"nearest: \"mamba\""});
}

TEST(deck_errors, products_of_8_bits_need_a_gpu_that_has_them) {
  const Deck plain = small();
  const Deck quantised =
      small({"train.precision=fp8", "train.fp8_first_layers=0", "train.fp8_last_layers=0"});
  layers::require_products(plain, 70);
  layers::require_products(quantised, 89);
  layers::require_products(quantised, 90);
  expect_parts(usage_error([&] { layers::require_products(quantised, 80); }),
               {"train.precision = \"fp8\"", "8.9 or newer", "this one has 8.0", "\"dtype\""});
}

TEST(deck_errors, files) {
  const TemporaryFolder folder;
  expect_parts(usage_error([&] { Deck::load(folder / "none.toml"); }),
               {"cannot read", "none.toml"});
  expect_parts(usage_error([&] { Deck::load(folder / ""); }), {"cannot read"});
  const std::string syntax = folder.write("syntax.toml", "[run]\nsteps = = 3\n");
  expect_parts(usage_error([&] { Deck::load(syntax); }), {"syntax.toml:2", "not TOML"});
  const std::string twice = folder.write("twice.toml", "[run]\nsteps = 3\nsteps = 4\n");
  expect_parts(usage_error([&] { Deck::load(twice); }), {"twice.toml:3"});
  const std::string circle = folder.write("circle.toml", "include = \"circle.toml\"\n");
  expect_parts(usage_error([&] { Deck::load(circle); }), {"circle.toml:1", "being read already"});
  const std::string lost = folder.write("lost.toml", "\ninclude = \"gone.toml\"\n");
  expect_parts(usage_error([&] { Deck::load(lost); }), {"lost.toml:2", "gone.toml"});
  const std::string self = folder / "self.toml";
  std::filesystem::create_symlink("self.toml", self);
  expect_parts(usage_error([&] { Deck::load(self); }), {"self.toml"});
  const std::string includes = folder.write("includes.toml", "include = \"self.toml\"\n");
  expect_parts(usage_error([&] { Deck::load(includes); }), {"includes.toml:1", "self.toml"});
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);  // as a process substitution's
  const std::string pipe = "/dev/fd/" + std::to_string(ends[0]);
  expect_parts(usage_error([&] { Deck::load(pipe); }), {pipe, "not a plain file"});
  const std::string wrong = folder.write("wrong.toml", "include = 3\n");
  expect_parts(usage_error([&] { Deck::load(wrong); }), {"wrong.toml:1", "include must be"});
}

TEST(deck_errors, overrides_without_shape) {
  expect_parts(error_of_override("run.steps"), {"'run.steps'", "section.key=value"});
  expect_parts(error_of_override("=3"), {"'=3'"});
}

}  // namespace
}  // namespace stowage::inputs
