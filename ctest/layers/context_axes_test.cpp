// Ranks that share sequences, by every exchange of attention and with documents that cross them,
// compute what one rank computes that has all tokens, in fp64; what they cannot share is refused.
#include <gtest/gtest.h>

#include "axes.hpp"
#include "layers/mixers/kinds.hpp"

namespace stowage::ctest {
namespace {

using execution::Dtype;

/// The kinds that see other tokens, each alone, then the pattern of all.
std::vector<std::string> patterns_of_tokens() {
  std::vector<std::string> patterns = kind_patterns();
  std::erase_if(patterns, [](const std::string& pattern) {
    return pattern.size() == 1 && !layers::kinds::attention.in(pattern) &&
           inputs::recurrent_layers(pattern).empty();
  });
  return patterns;
}

// One document over all ranks, those that end where a rank's tokens do, those of one token on
// either side of it, and a tail that begins inside.
TEST(context_axes, documents_of_shared_sequences_equal_one_rank) {
  const Axes axes;
  for (Case c : axes.grids()) {
    if (c.context == 1) continue;
    for (const std::vector<std::int32_t>& documents : {std::vector<std::int32_t>{0, 24},
                                                       {0, 6, 12, 18, 24},
                                                       {0, 11, 12, 13, 24},
                                                       {0, 5, 5, 14}}) {
      using Exchange = layers::ModelConfig::Attention::Exchange;
      const Exchange heads = exchange_of_heads(c);
      for (const auto& [exchange, zigzag] :
           {std::pair{heads, false}, {Exchange::keys, false}, {Exchange::keys, true}})
        for (const std::string& pattern : patterns_of_tokens()) {
          if (static_cast<int>(pattern.size()) < c.pipeline) continue;
          SCOPED_TRACE(text(c, pattern) + fmt::format(", {} documents, exchange {}, zigzag {}",
                                                      documents.size() - 1, int(exchange), zigzag));
          forecast::TrainerOptions options = options_of(pattern, Dtype::fp64);
          options.model.attention.exchange = exchange;
          if (pattern == every_kind()) use_gates(options);
          if (zigzag) make_zigzag(options, c.context);
          c.documents = documents;
          if (documents.back() == 24)  // no tail, with more tokens too
            c.documents.back() = static_cast<std::int32_t>(options.step.tokens);
          axes.compare(options, c);
          if (testing::Test::HasFailure()) return;
        }
    }
  }
}

// A narrower convolution is handed the same rows, of which it reads fewer.
TEST(context_axes, narrower_convolutions_equal_one_rank) {
  const Axes axes;
  for (Case c : axes.grids()) {
    if (c.context == 1 || c.pipeline > 1) continue;
    for (const int width : {2, 3}) {
      forecast::TrainerOptions options = options_of("M", Dtype::fp64);
      options.model.mamba.conv_width = width;
      c.documents = {0, 11, 12, 13, 24};
      c.documents.back() = static_cast<std::int32_t>(options.step.tokens);
      SCOPED_TRACE(text(c, "M") + fmt::format(", {} taps", width));
      axes.compare(options, c);
      if (testing::Test::HasFailure()) return;
    }
  }
}

// Fewer key and value heads than ranks: several have the same one, and its gradient is their sum.
TEST(context_axes, key_heads_of_several_ranks_equal_one_rank) {
  const Axes axes;
  for (Case c : axes.grids()) {
    if (c.context == 1) continue;
    for (const int kv_heads : {1, 2, 4}) {
      forecast::TrainerOptions options = options_of("M*-*", Dtype::fp64);
      options.model.attention.heads = 8;
      options.model.attention.kv_heads = kv_heads * c.tensor;
      options.model.attention.exchange = layers::ModelConfig::Attention::Exchange::heads;
      if (options.model.attention.kv_heads > 8) continue;
      SCOPED_TRACE(text(c, "M*-*") + fmt::format(", {} key heads", kv_heads));
      axes.compare(options, c);
      if (testing::Test::HasFailure()) return;
    }
  }
}

// Each rank's share of a key's gradient is rounded with the others', once.
TEST(context_axes, shares_of_key_gradients_travel_unrounded) {
  const Axes axes;
  for (const Case& c : axes.grids()) {
    if (c.context == 1 || c.pipeline > 1) continue;
    using Exchange = layers::ModelConfig::Attention::Exchange;
    for (const auto& [exchange, zigzag] :
         {std::pair{Exchange::keys, false}, {Exchange::keys, true}, {Exchange::heads, false}}) {
      forecast::TrainerOptions options = options_of("*", Dtype::bf16);
      options.model.attention = {.heads = 8, .kv_heads = c.tensor, .head_dim = 4};
      options.model.attention.exchange = exchange;
      if (zigzag) make_zigzag(options, c.context);
      const forecast::TrainerPlan plan(axes.shared(options, c));
      const execution::Program& program = plan.training().front()->recorded.program;
      int found = 0;
      for (const execution::Op& op : program.ops()) {
        const bool sums =
            op.name.ends_with(exchange == Exchange::heads ? "exchange_dkv" : "reduce_dkv");
        if (!sums) continue;
        ++found;
        EXPECT_EQ(program.info(op.uses.front().tensor).buffers[0].dtype, Dtype::fp32);
        EXPECT_EQ(op.communication->dtype, Dtype::fp32);
      }
      EXPECT_EQ(found, 1) << text(c, "*") << " exchange " << int(exchange);
    }
  }
}

TEST(context_axes, chunks_of_odd_tokens_are_refused) {
  const Axes axes;
  for (const Case& c : axes.grids()) {
    if (c.context == 1 || c.tensor > 1 || c.pipeline > 1) continue;
    forecast::TrainerOptions options = axes.shared(options_of("*", Dtype::fp64), c);
    options.step.tokens = options.step.sequence = 5 * c.context;
    options.model.attention.exchange = layers::ModelConfig::Attention::Exchange::keys;
    EXPECT_NO_THROW(forecast::TrainerPlan{options});
    options.model.attention.zigzag = true;
    try {
      const forecast::TrainerPlan plan(options);
      FAIL() << "five tokens were two chunks";
    } catch (const execution::Error& error) {
      EXPECT_EQ(error.exit(), execution::Exit::usage);
      EXPECT_NE(std::string(error.what()).find("parallel.context_tokens"), std::string::npos);
    }
  }
}

TEST(context_axes, results_of_chunks_are_not_computed_again) {
  const Axes axes;
  for (const Case& c : axes.grids()) {
    if (c.context == 1) continue;
    forecast::TrainerOptions options = axes.shared(options_of("*-", Dtype::fp64), c);
    make_zigzag(options, c.context);
    offload::Policy& policy = options.planner.policy;
    policy.min_tensor_bytes = 0;
    policy.recompute = {{"core_attn", {"core_attn"}}};
    options.model.attention.exchange = layers::ModelConfig::Attention::Exchange::keys;
    EXPECT_NO_THROW(forecast::TrainerPlan{options});
    policy.recompute.push_back({"attn_proj", {"attn_proj"}});
    try {
      const forecast::TrainerPlan plan(options);
      FAIL() << "messages were sent again, " << text(c, "*-");
    } catch (const execution::Error& error) {
      EXPECT_EQ(error.exit(), execution::Exit::usage);
      for (const char* part : {"recompute.modules: attn_proj", "offload.modules",
                               "parallel.context_tokens = \"zigzag\"", "\"contiguous\""})
        EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
    }
    policy.kind = offload::Policy::Kind::manual;
    policy.offload = {{"attn_proj", {"attn_proj"}}};
    EXPECT_NO_THROW(forecast::TrainerPlan{options});
    policy.offload.clear();
    options.model.attention.zigzag = false;
    EXPECT_NO_THROW(forecast::TrainerPlan{options});
  }
}

TEST(context_axes, heads_that_do_not_divide_are_refused) {
  const Axes axes;
  for (const Case& c : axes.grids()) {
    if (c.context == 1 || c.tensor > 1 || c.pipeline > 1) continue;
    forecast::TrainerOptions options = axes.shared(options_of("*", Dtype::fp64), c);
    options.model.attention.heads = 9;
    options.model.attention.kv_heads = 3;
    EXPECT_NO_THROW(forecast::TrainerPlan{options});
    options.model.attention.exchange = layers::ModelConfig::Attention::Exchange::heads;
    try {
      const forecast::TrainerPlan plan(options);
      FAIL() << "9 heads were shared by " << c.context << " ranks";
    } catch (const execution::Error& error) {
      EXPECT_EQ(error.exit(), execution::Exit::usage);
      const std::string what = error.what();
      for (const std::string& part :
           {fmt::format("parallel.context = {}", c.context), std::string("all_gather"),
            std::string("parallel.context may be 3, 9;")})
        EXPECT_NE(what.find(part), std::string::npos) << what;
    }
  }
}

}  // namespace
}  // namespace stowage::ctest
