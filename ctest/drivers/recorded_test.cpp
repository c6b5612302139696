// The cases of stowage_bench_kernels that layers/ records: which operators they have and what these
// count, and that their own checks pass on the host and see what is wrong.
#include "drivers/bench_kernels/recorded.hpp"

#include <gtest/gtest.h>

#include <map>

#include "execution/backend.hpp"
#include "execution/error.hpp"

namespace stowage::drivers::bench {
namespace {

using Form = layers::ModelConfig::Mamba::Form;
using Names = std::vector<std::string>;

const Shape kMixer{{"B", 2}, {"T", 8192}, {"H", 64}, {"P", 64}, {"G", 8}, {"N", 128}};
const Shape kTinyMixer{{"B", 3}, {"T", 150}, {"H", 8}, {"P", 16}, {"G", 2}, {"N", 16}};

Shape moe(std::int64_t tokens, std::int64_t experts, std::int64_t topk, std::int64_t width,
          std::int64_t ffn, bool accumulate) {
  return {{"T", tokens}, {"E", experts}, {"R", topk},
          {"D", width},  {"F", ffn},     {"accumulate", accumulate ? 1 : 0}};
}

Names names(const RecordedMixer& recorded, bool backward) {
  Names all;
  for (const RecordedOp& op : recorded.ops)
    if (op.backward == backward) all.push_back(op.name);
  return all;
}

void expect_cost(const execution::Cost& cost, double flops, double bytes) {
  EXPECT_EQ(cost.flops, flops);
  EXPECT_EQ(cost.bytes, bytes);
}

TEST(recorded, other_letters_are_refused) {
  layers::ModelConfig model;
  model.width = 64;
  model.attention = {.heads = 2, .kv_heads = 2, .head_dim = 32};
  model.mlp.ffn = 64;
  model.moe = {.experts = 2, .topk = 1, .ffn = 64};
  for (const char* pattern : {"*", "-", "MM", "G", ""}) {
    model.pattern = pattern;
    try {
      (void)RecordedMixer(model, 1, 64, false);
      ADD_FAILURE() << "'" << pattern << "' was recorded";
    } catch (const execution::Error& error) {
      EXPECT_EQ(error.exit(), execution::Exit::usage);
      EXPECT_NE(std::string(error.what()).find("allowed: M, E"), std::string::npos) << error.what();
    }
  }
}

TEST(recorded, mixers_have_the_operators_of_their_form) {
  const RecordedMixer separate = record_mixer(kMixer, Form::separate, true);
  EXPECT_EQ(names(separate, false), (Names{"conv1d", "scan", "gated_norm"}));
  EXPECT_EQ(names(separate, true),
            (Names{"gated_norm_backward", "scan_backward", "conv1d_backward"}));
  const RecordedMixer fused_forward = record_mixer(kMixer, Form::fused_forward, true);
  EXPECT_EQ(names(fused_forward, false), (Names{"conv_scan", "gated_norm"}));
  EXPECT_EQ(names(fused_forward, true), names(separate, true));
  const RecordedMixer fused = record_mixer(kMixer, Form::fused, true);
  EXPECT_EQ(names(fused, false), names(fused_forward, false));
  EXPECT_EQ(names(fused, true), (Names{"gated_norm_backward", "conv_scan_backward"}));
  const RecordedMixer forward = record_mixer(kMixer, Form::separate, false);
  EXPECT_EQ(names(forward, false), names(separate, false));
  EXPECT_EQ(names(forward, true), Names{});
}

// As results/published/h200/mixer.h5 counts them.
TEST(recorded, mixers_count_what_published_ones_do) {
  expect_cost(record_mixer(kMixer, Form::separate, false).cost(), 57680068608, 1143148928);
  expect_cost(record_mixer(kMixer, Form::separate, true).cost(), 195588784128, 2959623680);
}

// As results/published/h200/moe_layer.h5 counts them.
TEST(recorded, parts_of_a_layer_of_experts_count_what_published_ones_do) {
  for (const bool accumulate : {false, true}) {
    const RecordedMixer layer = record_moe_layer(moe(16384, 32, 4, 2048, 1024, accumulate));
    EXPECT_EQ(names(layer, false),
              (Names{"router", "router", "permute_index", "gather", "fc1", "fc2", "combine"}));
    EXPECT_EQ(names(layer, true),
              (Names{"gather_dy", "fc2_backward", "fc2_weight", "fc1_backward", "combine_dx",
                     "gather_again", "fc1_weight", "router_backward", "router_backward"}));
    std::map<std::string, execution::Cost> parts;
    for (const RecordedOp& op : layer.ops) parts[op.name] = parts[op.name] + op.op.cost;
    const double weight = accumulate ? 939524096 : 671088640;
    expect_cost(parts["router"], 2151677952, 71958656);
    expect_cost(parts["permute_index"], 0, 1048708);
    expect_cost(parts["fc1"], 275079233536, 671088640);
    expect_cost(parts["fc2"], 274877906944, 536870912);
    expect_cost(parts["fc2_backward"], 275414777856, 805306368);
    expect_cost(parts["fc1_backward"], 274877906944, 536870912);
    for (const char* name : {"fc1_weight", "fc2_weight"})
      expect_cost(parts[name], 274877906944, weight);
    for (const char* name : {"gather", "gather_dy", "gather_again"})
      expect_cost(parts[name], 0, 335806464);
    for (const char* name : {"combine", "combine_dx"})
      expect_cost(parts[name], 134217728, 335806464);
    expect_cost(parts["router_backward"], 4303355904, accumulate ? 209322116 : 209059972);
    expect_cost(layer.cost(), 1656729108480, accumulate ? 6390546824 : 5853413768);
  }
}

/// What stowage_bench_kernels does before it times an implementation.
std::vector<Agreement> checked(Case& one, run::Processor& host, const std::string& implementation) {
  for (Operand* operand : one.operands) {
    if (operand->role() == Role::output) operand->poison();
    if (operand->role() == Role::update) operand->refill();
  }
  one.enqueue(implementation, host.queue());
  host.queue().synchronize();
  return one.check(implementation);
}

Names expect_agreements(const std::vector<Agreement>& agreements) {
  Names compared;
  for (const Agreement& one : agreements) {
    EXPECT_LE(one.error, one.tolerance) << one.what << " over " << one.over;
    EXPECT_GT(one.error, one.tolerance / 30) << one.what << ": a bound that holds nothing";
    EXPECT_FALSE(one.over.empty()) << one.what;
    compared.push_back(one.what);
  }
  return compared;
}

TEST(recorded, mixers_agree_with_their_reference) {
  run::Processor host(execution::make_host_backend());
  const auto forward = make_mixer(host, kTinyMixer, 1, false);
  const auto both = make_mixer(host, kTinyMixer, 1, true);
  EXPECT_FALSE(forward->operands.empty());
  EXPECT_LT(forward->operands.size(), both->operands.size());
  for (const char* form : {"ours", "fused_forward", "fused"}) {
    EXPECT_EQ(expect_agreements(checked(*forward, host, form)), Names{"out"}) << form;
    EXPECT_EQ(expect_agreements(checked(*both, host, form)),
              (Names{"out", "dz", "dx", "dB", "dC", "ddt", "dconv_w"}))
        << form;
  }
}

TEST(recorded, layers_of_experts_agree_with_their_reference) {
  run::Processor host(execution::make_host_backend());
  for (const bool accumulate : {false, true}) {
    const auto layer = make_moe_layer(host, moe(96, 6, 2, 64, 48, accumulate), 1);
    EXPECT_EQ(expect_agreements(checked(*layer, host, "ours")),
              (Names{"y", "dx", "dweights", "dw1", "dw2", "drouter"}));
    for (const char* part : {"forward", "backward", "fc1_weight", "combine_dx"})
      EXPECT_TRUE(checked(*layer, host, part).empty()) << part;
  }
}

// A gradient that is not written, or not added to, is seen.
TEST(recorded, gradients_that_lack_something_are_found) {
  run::Processor host(execution::make_host_backend());
  for (const bool accumulate : {false, true}) {
    const auto layer = make_moe_layer(host, moe(96, 6, 2, 64, 48, accumulate), 1);
    for (Operand* operand : layer->operands) {
      if (!operand->name().starts_with("gradient/")) continue;
      (void)checked(*layer, host, "ours");
      accumulate ? operand->refill() : operand->poison();
      int wrong = 0;
      for (const Agreement& one : layer->check("ours")) wrong += !(one.error <= one.tolerance);
      EXPECT_EQ(wrong, 1) << operand->name();
    }
  }
}

}  // namespace
}  // namespace stowage::drivers::bench
