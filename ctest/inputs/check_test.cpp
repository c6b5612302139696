#include "inputs/deck/check.hpp"

#include <gtest/gtest.h>

#include "ctest/inputs/support.hpp"
#include "inputs/deck/layer_kinds.hpp"

namespace stowage::inputs {
namespace {

using testing::expect_parts;
using testing::usage_error;
using Overrides = std::vector<std::string>;

Deck deck_of(const std::string& pattern, Overrides overrides = {}) {
  overrides.insert(overrides.begin(),
                   {"data.source=synthetic", "model.pattern=\"" + pattern + "\""});
  return Deck::parse("", "empty.toml", overrides);
}

std::string error_of(const std::string& pattern, const Overrides& overrides = {}) {
  return usage_error([&] { deck_of(pattern, overrides); });
}

TEST(check, patterns) {
  EXPECT_NO_THROW(deck_of("M*-E|M"));
  expect_parts(error_of(""), {"model.pattern is empty"});
  expect_parts(error_of("M*XE"), {"model.pattern = \"M*XE\"", "'X' at position 3", "M Mamba-2"});
  expect_parts(error_of("m"), {"'m' at position 1"});
  for (const char* cut : {"|M", "M|", "M||*"}) expect_parts(error_of(cut), {"between two layers"});
}

TEST(check, every_declared_letter_is_taken_and_named) {
  const std::string unknown = error_of("x");
  for (const LayerKind* kind : layer_kinds()) {
    EXPECT_NO_THROW(deck_of(std::string(1, kind->letter))) << kind->name;
    expect_parts(unknown, {std::string(1, kind->letter) + ' ' + std::string(kind->name)});
  }
}

TEST(check, whether_a_layer_is_recurrent_is_declared_with_its_letter) {
  for (const LayerKind* kind : layer_kinds())
    EXPECT_EQ(recurrent_layers(std::string(1, kind->letter)), kind->recurrent ? kind->name : "");
  EXPECT_EQ(recurrent_layers("*-M|M"), "Mamba-2");
  EXPECT_EQ(recurrent_layers("*G-|"), "gated DeltaNet");
  EXPECT_EQ(recurrent_layers("K"), "");  // not declared
}

TEST(check, side_by_side_microbatches_of_shared_sequences_have_no_recurrent_layer) {
  const Overrides shared = {"parallel.overlap_microbatches=true", "parallel.context=2"};
  for (const LayerKind* kind : layer_kinds()) {
    const std::string pattern(1, kind->letter);
    if (kind->recurrent)
      expect_parts(error_of(pattern, shared),
                   {"parallel.overlap_microbatches = true", kind->name, "layers of model.pattern"});
    else
      EXPECT_NO_THROW(deck_of(pattern, shared)) << kind->name;
  }
}

TEST(check, sizes_that_no_machine_has) {
  using Case = std::pair<const char*, Overrides>;
  for (const auto& [pattern, overrides] :
       {Case{"-", {"model.vocab_size=2147483647", "model.hidden_size=1048576"}},
        {"-", {"train.global_batch_size=2147483647", "train.seq_length=16777216"}},
        {"-",
         {"train.micro_batch_size=65536", "train.global_batch_size=65536", "train.seq_length=32767",
          "model.hidden_size=65536"}},
        {"*", {"model.num_attention_heads=65536", "model.head_dim=65536"}},
        {"M", {"model.mamba_num_heads=65536", "model.mamba_head_dim=65536"}},
        {"M",
         {"model.mamba_num_heads=65536", "model.mamba_num_groups=65536", "model.mamba_head_dim=8",
          "model.mamba_state_dim=1048576"}},
        {"-", {"model.hidden_size=1048576", "model.ffn_hidden_size=16777216"}},
        {"E",
         {"model.num_moe_experts=65536", "model.hidden_size=65536",
          "model.moe_ffn_hidden_size=65536"}}})
    expect_parts(error_of(pattern, overrides),
                 {"no machine has more", "(command line)", " times "});
  for (const char* cut : {"context", "expert", "pipeline", "data"}) {  // 2^32 wraps an int to 0
    const std::string other = std::string("parallel.") + cut;
    expect_parts(error_of("-", {"parallel.tensor=65536", other + "=65536"}),
                 {"parallel.tensor = 65536 (command line)", other + " = 65536 (command line)",
                  "4.295e+09 ranks", "more than 1048576"});
  }
  expect_parts(error_of("-", {"parallel.tensor=65536", "parallel.context=65536",
                              "parallel.expert=65536", "parallel.pipeline=65536"}),
               {"1.845e+19 ranks", "more than 1048576"});  // an int64 wraps, too
  expect_parts(error_of("-", {"parallel.pipeline=65536", "parallel.virtual_stages=65536"}),
               {"parallel.virtual_stages = 65536", "4.295e+09 stages"});
  expect_parts(error_of(std::string(5000, 'M')), {"5000 letters", "at most 4096"});
  expect_parts(
      error_of("M", {"data.synthetic_tokens=1099511627776", "data.synthetic_document_length=1"}),
      {"documents", "data.synthetic_tokens"});
  expect_parts(error_of("M", {"data.synthetic_tokens=1099511627776", "train.seq_length=64",
                              "data.synthetic_document_length=8192", "data.packing=best_fit"}),
               {"data.synthetic_tokens", "train.seq_length = 64", "data.packing = \"best_fit\"",
                "more than 268435456 sequences"});
  expect_parts(
      error_of("M", {"data.synthetic_lengths=[5]", "data.synthetic_document_length=1"}),
      {"data.synthetic_document_length = 1 (command line)", "data.synthetic_lengths", "one of"});
}

TEST(check, attention_heads) {
  expect_parts(error_of("*", {"model.num_attention_heads=6", "model.num_query_groups=4",
                              "model.head_dim=32"}),
               {"model.num_query_groups = 4 (command line)", "must divide",
                "model.num_attention_heads = 6"});
  expect_parts(error_of("*", {"model.num_attention_heads=3"}),
               {"model.hidden_size = 128 (default)"});
  expect_parts(error_of("*", {"model.head_dim=33", "model.position_embedding=rope"}), {"even"});
  EXPECT_NO_THROW(deck_of("M", {"model.num_attention_heads=3"}));  // no attention layer
}

TEST(check, mamba_heads) {
  expect_parts(error_of("M", {"model.mamba_num_heads=6", "model.mamba_num_groups=4"}),
               {"model.mamba_num_groups = 4", "model.mamba_num_heads = 6"});
  expect_parts(error_of("M", {"model.mamba_head_dim=48"}), {"model.mamba_head_dim = 48", "2 *"});
  EXPECT_NO_THROW(deck_of("M", {"model.mamba_head_dim=48", "model.mamba_num_heads=5"}));
  expect_parts(error_of("M", {"model.mamba_dt_min=1", "model.mamba_dt_max=0.5"}), {"below"});
  EXPECT_NO_THROW(deck_of("*", {"model.mamba_num_heads=6", "model.mamba_num_groups=4"}));
}

TEST(check, experts) {
  expect_parts(error_of("E", {"model.num_moe_experts=4", "model.moe_router_topk=5"}),
               {"model.moe_router_topk = 5", "at most", "model.num_moe_experts = 4"});
  expect_parts(error_of("E", {"model.moe_num_groups=3"}), {"model.moe_num_groups = 3", "divide"});
  expect_parts(error_of("E", {"model.moe_num_groups=2", "model.moe_group_topk=3"}), {"at most"});
  expect_parts(error_of("E", {"model.num_moe_experts=8", "model.moe_num_groups=4",
                              "model.moe_group_topk=1", "model.moe_router_topk=3"}),
               {"more than the 2 experts of 1 groups"});
}

TEST(check, training) {
  expect_parts(error_of("-", {"train.micro_batch_size=3", "train.global_batch_size=4"}),
               {"train.micro_batch_size = 3", "divide", "train.global_batch_size = 4"});
  expect_parts(error_of("-", {"train.micro_batch_size=65536", "train.global_batch_size=65536",
                              "train.seq_length=65536"}),
               {"2^31 - 1"});
  expect_parts(error_of("-", {"optim.lr=1e-5"}), {"optim.min_lr = 3e-05", "optim.lr = 1e-05"});
  expect_parts(error_of("-", {"optim.warmup_steps=101"}), {"optim.decay_steps = 100 (derived)"});
  EXPECT_NO_THROW(deck_of("-", {"optim.warmup_steps=101", "optim.schedule=constant"}));
  expect_parts(error_of("-", {"optim.schedule=wsd", "optim.wsd_decay_steps=200"}), {"at most"});
  expect_parts(error_of("-", {"train.dtype=fp64", "execution.backend=cuda"}), {"on the host"});
}

TEST(check, data_and_memory) {
  expect_parts(error_of("-", {"data.source=text"}), {"data.path is empty"});
  for (const std::string key : {"data.path", "data.validation_path"})
    expect_parts(error_of("-", {key + "=a.txt"}),
                 {key + " = \"a.txt\" (command line)", "data.source = \"synthetic\"", "auto"});
  for (const std::string key : {"data.mix", "data.validation"})
    expect_parts(error_of("-", {key + "=a=a.txt"}),
                 {key + " = [\"a=a.txt\"] (command line)", "data.source = \"synthetic\"", "auto"});
  const auto mixed = [](std::vector<std::string> more) {
    more.insert(more.begin(), {"data.source=text", "data.mix=a=a.txt,b-2=b=c.txt"});
    return error_of("-", more);
  };
  EXPECT_NO_THROW(deck_of("-", {"data.source=text", "data.mix=a=a.txt,b-2=b=c.txt",
                                "data.mix_weights=[1,0.5]", "data.validation=b=v.txt"}));
  expect_parts(mixed({"data.path=c.txt"}), {"data.path = \"c.txt\"", "data.mix", "one of them"});
  expect_parts(mixed({"data.validation=v=v.txt", "data.validation_path=v.txt"}), {"one of them"});
  expect_parts(mixed({"data.mix_weights=[1,2,3]"}),
               {"data.mix_weights", "3 weights of the 2 files"});
  expect_parts(mixed({"data.mix_weights=[1,0]"}), {"data.mix_weights"});
  for (const std::string item : {"a.txt", "=a.txt", "a=", "a b=a.txt", "a/b=a.txt"})
    expect_parts(mixed({"data.validation=" + item}), {"'" + item + "' is no NAME=PATH"});
  expect_parts(mixed({"data.validation=a=a.txt,a=b.txt"}), {"two files are named 'a'"});
  expect_parts(mixed({"data.validation=step=a.txt"}), {"cannot be named 'step'"});
  expect_parts(error_of("-", {"data.document_token=256"}), {"model.vocab_size = 256"});
  expect_parts(error_of("-", {"checkpoint.interval=5"}), {"checkpoint.directory"});
  expect_parts(error_of("-", {"offload.delay_until_graph=true", "graphs.mode=step"}),
               {"offload.delay_until_graph", "graphs.mode = \"scopes\""});
  expect_parts(error_of("-", {"recompute.modules=mlp_act,mlp_norm"}),
               {"mlp_norm cannot be computed again"});
  expect_parts(error_of("-", {"graphs.mode=scopes"}), {"graphs.scopes"});
  expect_parts(error_of("-", {"offload.policy=manual"}), {"offload.modules"});
}

TEST(check, stretches_of_context_ranks) {
  expect_parts(
      error_of("-", {"parallel.context_tokens=zigzag", "parallel.context_attention=all_to_all"}),
      {"parallel.context_tokens = \"zigzag\"", "parallel.context_attention"});
  const Deck deck = deck_of("-", {"parallel.context_tokens=zigzag", "parallel.context=3",
                                  "train.seq_length=12", "train.global_batch_size=2"});
  EXPECT_EQ(check_ranks(deck, 3), 2);
  const Deck odd = deck_of("-", {"parallel.context_tokens=zigzag", "parallel.context=3",
                                 "train.seq_length=15", "train.global_batch_size=2"});
  expect_parts(usage_error([&] { check_ranks(odd, 3); }),
               {"parallel.context_tokens = \"zigzag\"", "15 tokens", "divide by 6"});
}

TEST(check, microbatches_side_by_side_have_no_pipeline) {
  expect_parts(error_of("--", {"parallel.overlap_microbatches=true", "parallel.pipeline=2"}),
               {"parallel.overlap_microbatches = true", "parallel.pipeline = 1, not",
                "parallel.pipeline = 2"});
  expect_parts(error_of("M-", {"parallel.overlap_microbatches=true", "parallel.context=2"}),
               {"parallel.overlap_microbatches = true", "parallel.context = 1", "\"M-\"",
                "parallel.context = 2"});
  const Deck one =
      deck_of("-", {"parallel.overlap_microbatches=true", "train.global_batch_size=2"});
  EXPECT_EQ(check_ranks(one, 1), 2);
  expect_parts(usage_error([&] { check_ranks(one, 2); }),
               {"parallel.overlap_microbatches = true", "several microbatches",
                "train.global_batch_size = 2", "makes 1"});
}

TEST(check, several_stages_of_a_rank) {
  expect_parts(error_of("--", {"parallel.virtual_stages=2", "parallel.schedule=auto"}),
               {"parallel.virtual_stages = 2", "at least 2", "parallel.pipeline = 1"});
  expect_parts(error_of("----", {"parallel.virtual_stages=2", "parallel.pipeline=2"}),
               {"parallel.virtual_stages = 2", "\"interleaved\" or \"auto\"",
                "parallel.schedule = \"1f1b\""});
  expect_parts(
      error_of("--", {"parallel.schedule=interleaved", "parallel.pipeline=2"}),
      {"parallel.schedule = \"interleaved\"", "at least 2", "parallel.virtual_stages = 1"});
  const std::vector<std::string> keys = {"parallel.virtual_stages=2", "parallel.pipeline=2",
                                         "train.global_batch_size=6"};
  const auto with = [&](const std::string& pattern, const char* schedule) {
    std::vector<std::string> all = keys;
    all.push_back(std::string("parallel.schedule=") + schedule);
    return deck_of(pattern, all);
  };
  EXPECT_EQ(check_ranks(with("----", "interleaved"), 2), 6);
  expect_parts(usage_error([&] { check_ranks(with("----", "interleaved"), 4); }),
               {"parallel.schedule = \"interleaved\"", "multiple of parallel.pipeline = 2",
                "train.global_batch_size = 6", "makes 3"});
  // What is cut for them, and not for one stage a rank, leaves no choice.
  EXPECT_EQ(check_ranks(with("----", "auto"), 4), 3);
  EXPECT_THROW(check_ranks(with("-|-|-|-", "auto"), 4), execution::Error);
}

TEST(check, ranks) {
  const Deck deck = deck_of("-", {"train.micro_batch_size=2", "train.global_batch_size=12"});
  EXPECT_EQ(check_ranks(deck, 1), 6);
  EXPECT_EQ(check_ranks(deck, 2), 3);
  EXPECT_EQ(check_ranks(deck, 6), 1);
  expect_parts(usage_error([&] { check_ranks(deck, 4); }),
               {"train.global_batch_size = 12", "4 * 2 = 8"});
  const Deck fixed = deck_of("-", {"parallel.data=2", "train.global_batch_size=4"});
  EXPECT_EQ(check_ranks(fixed, 2), 2);
  expect_parts(usage_error([&] { check_ranks(fixed, 4); }), {"parallel.data = 2", "leave, 4"});
  const Deck shared =
      deck_of("-", {"parallel.tensor=2", "parallel.expert=3", "train.global_batch_size=12"});
  EXPECT_EQ(check_ranks(shared, 6), 4);
  EXPECT_EQ(check_ranks(shared, 12), 2);
  expect_parts(usage_error([&] { check_ranks(shared, 8); }),
               {"parallel.tensor = 2", "parallel.expert = 3", "multiple of 6", "8 were started"});
  const Deck stages = deck_of("-", {"parallel.pipeline=3", "train.global_batch_size=4"});
  EXPECT_EQ(check_ranks(stages, 3), 4);
  EXPECT_EQ(check_ranks(stages, 6), 2);
  expect_parts(usage_error([&] { check_ranks(stages, 4); }),
               {"parallel.pipeline = 3", "multiple of 3", "4 were started"});
  const Deck sequences = deck_of("-", {"parallel.context=2", "parallel.tensor=2",
                                       "train.global_batch_size=12", "train.seq_length=8"});
  EXPECT_EQ(check_ranks(sequences, 4), 12);
  EXPECT_EQ(check_ranks(sequences, 12), 4);
  expect_parts(usage_error([&] { check_ranks(sequences, 6); }),
               {"parallel.context = 2", "multiple of 4", "6 were started"});
  const Deck uneven = deck_of("-", {"parallel.context=2", "train.seq_length=7"});
  expect_parts(usage_error([&] { check_ranks(uneven, 2); }),
               {"parallel.context = 2", "train.seq_length = 7", "7 tokens", "multiple of 2"});
}

}  // namespace
}  // namespace stowage::inputs
