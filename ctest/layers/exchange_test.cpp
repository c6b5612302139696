// What the exchanges of attention, by ranks that share sequences, and of experts that ranks share
// are expected to take, and what is chosen by it.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "execution/error.hpp"
#include "kernels/linear/product_fill.hpp"
#include "layers/context/context_attention.hpp"
#include "tiny_model.hpp"

namespace stowage::ctest {
namespace {

using Exchange = forecast::ExchangeForecast::Exchange;

/// Pairs of causal sequences of `length`, counted one token after the other.
std::int64_t counted_pairs(std::int64_t begin, std::int64_t end, std::int64_t length) {
  std::int64_t pairs = 0;
  for (std::int64_t token = begin; token < end; ++token) pairs += token % length + 1;
  return pairs;
}

TEST(exchange, pairs_of_the_busiest_rank_are_counted) {
  for (const std::int64_t length : {1, 5, 12, 24, 60, 120})
    for (const int ranks : {1, 2, 3, 5, 6})
      for (const bool zigzag : {false, true}) {
        const std::int64_t tokens = 120, parts = zigzag ? 2 * ranks : ranks;
        const auto of = [&](std::int64_t part) {
          return counted_pairs(part * tokens / parts, (part + 1) * tokens / parts, length);
        };
        std::int64_t most = 0;
        for (std::int64_t rank = 0; rank < ranks; ++rank)
          most = std::max(most, of(rank) + (zigzag ? of(parts - 1 - rank) : 0));
        EXPECT_EQ(layers::busiest_pairs(tokens, tokens * (length + 1) / 2, ranks, zigzag), most)
            << "sequences of " << length << " over " << ranks << " ranks, zigzag " << zigzag;
      }
  // One sequence over all ranks: two chunks make the work even.
  EXPECT_EQ(layers::busiest_pairs(120, 60 * 121, 6, true), 60 * 121 / 6);
  // Documents that fill a part of the tokens alone have fewer pairs than there are tokens.
  for (const std::int64_t few : {0, 1, 60, 119})
    EXPECT_EQ(layers::busiest_pairs(120, few, 6, true), 20) << few;
}

forecast::TrainerOptions options_of(int context, int rank = 0) {
  forecast::TrainerOptions options = tiny_options("M*", execution::Dtype::bf16);
  options.model.attention = {.heads = 8, .kv_heads = 4, .head_dim = 16};
  options.step.tokens = options.step.sequence = 64;
  options.sharing.ranks =
      parallel::planned_ranks(parallel::fit_grid(context, 1, context, 1, 1), rank);
  options.planner.rates.op_s = 0;
  options.planner.rates.link.latency_s = 0;
  return options;
}

Exchange chosen(const forecast::TrainerOptions& options) {
  const forecast::TrainerPlan plan(options);
  EXPECT_EQ(plan.options().model.attention.exchange, plan.expected().exchange->chosen);
  return plan.options().model.attention.exchange;
}

TEST(exchange, the_quicker_form_is_chosen) {
  forecast::TrainerOptions options = options_of(2);
  // Links decide: a rank's share of heads travels six times, keys and values three times whole.
  options.planner.rates.link.bytes_per_s = 1e3;
  options.model.attention.kv_heads = 1;
  EXPECT_EQ(chosen(options), Exchange::keys);
  options.model.attention.kv_heads = 8;
  EXPECT_EQ(chosen(options), Exchange::heads);
  // Products decide: the last rank has three quarters of the pairs of one sequence.
  options.planner.rates.link.bytes_per_s = 1e30;
  options.planner.rates.flops_per_s = 1e3;
  options.model.attention.kv_heads = 1;
  EXPECT_EQ(chosen(options), Exchange::heads);
}

TEST(exchange, uneven_work_is_expected_and_zigzag_chunks_make_it_even) {
  forecast::TrainerOptions options = options_of(4);
  constexpr std::int64_t kSequence = 8192, kPart = kSequence / 4;
  options.step.tokens = options.step.sequence = kSequence;  // that attention takes the most
  options.planner.rates.flops_per_s = 1;                    // products are all there is
  const auto compute_s = [&](Exchange exchange, bool zigzag) {
    options.model.attention.exchange = exchange;
    options.model.attention.zigzag = zigzag;
    const forecast::Expected expected = forecast::decide_open_choices(options);
    const auto& forecast = expected.exchange;
    EXPECT_EQ(forecast->forms.size(), 1U);
    return forecast->forms.front().compute_s;
  };
  const double even = compute_s(Exchange::heads, false);
  const double chunks = compute_s(Exchange::keys, true);
  EXPECT_GT(compute_s(Exchange::keys, false), 1.05 * even);
  // Of the chunks' gradients of keys and values, and of all ranks' summands of a rank's own.
  const double sums = (kSequence + kPart * 3) * 2 * 4 * 16;
  // Queries have a product of their own, whose tiles are no fuller for that.
  const auto idle = [&](std::int64_t outputs) {
    return kernels::product_idle_flops(kPart, outputs, options.model.width);
  };
  const double apart = 2 * idle(128) - idle(256);
  EXPECT_NEAR(chunks, even + sums + apart, 1e-9 * even);
}

TEST(exchange, only_what_heads_allow_is_compared) {
  forecast::TrainerOptions options = options_of(4);
  EXPECT_EQ(forecast::decide_open_choices(options).exchange->forms.size(), 2U);
  options.model.attention.heads = options.model.attention.kv_heads = 6;
  const forecast::Expected expected = forecast::decide_open_choices(options);
  const auto& forecast = expected.exchange;
  ASSERT_EQ(forecast->forms.size(), 1U);
  EXPECT_EQ(forecast->chosen, Exchange::keys);
  options.model.attention.exchange = Exchange::heads;
  EXPECT_THROW((void)forecast::decide_open_choices(options).exchange, execution::Error);
  options.model.pattern = std::string(1, 'M');
  EXPECT_FALSE(forecast::decide_open_choices(options).exchange);
  EXPECT_FALSE(forecast::decide_open_choices(options_of(1)).exchange);
}

// Or they would wait for each other's other exchange.
TEST(exchange, every_rank_finds_the_same) {
  const forecast::Expected first_expected = forecast::decide_open_choices(options_of(4));
  const auto& first = *first_expected.exchange;
  for (int rank = 1; rank < 4; ++rank) {
    const forecast::Expected own_expected = forecast::decide_open_choices(options_of(4, rank));
    const auto& own = *own_expected.exchange;
    EXPECT_EQ(own.chosen, first.chosen);
    for (std::size_t i = 0; i < first.forms.size(); ++i)
      EXPECT_EQ(own.forms[i].time_s(), first.forms[i].time_s());
  }
}

// Four ranks share the rows of a sequence by two axes, and each has 16: a router's gradient is of
// these, and its losses count those of both tensor ranks.
TEST(exchange, a_routers_costs_are_of_the_rows_that_this_rank_takes) {
  forecast::TrainerOptions options = tiny_options("E", execution::Dtype::bf16);
  options.model.vocabulary = 16;
  options.model.moe = {.experts = 32, .topk = 2, .ffn = 8};
  options.step.tokens = options.step.sequence = 64;
  options.sharing.ranks = parallel::planned_ranks(parallel::fit_grid(4, 2, 2, 1, 1), 0);
  const forecast::TrainerPlan plan(options);
  std::map<std::string, execution::Cost> costs;
  for (const execution::Op& op : plan.training().front()->recorded.program.ops())
    costs[op.name.substr(op.name.rfind('/') + 1)] = op.cost;
  const auto width = static_cast<double>(options.model.width);
  EXPECT_EQ(costs.at("router_gate_backward").flops, 2 * 2 * 16 * 32 * width);
  EXPECT_EQ(costs.at("count").bytes, 4 * (16 * 2 + 33));
  EXPECT_EQ(costs.at("count_tokens").bytes, 4 * (2 * 16 * 2 + 33));
}

using ExpertExchange = forecast::ExpertForecast::Exchange;

/// With one choice of 32 experts a token goes to one rank, so that few rows travel by slots.
forecast::TrainerOptions experts_over(int expert, int rank = 0) {
  forecast::TrainerOptions options = tiny_options("E-", execution::Dtype::bf16);
  options.model.moe = {.experts = 32, .topk = 1, .ffn = 8};
  options.step.tokens = options.step.sequence = 64;
  options.sharing.ranks =
      parallel::planned_ranks(parallel::fit_grid(expert, 1, 1, expert, 1), rank);
  options.planner.rates.op_s = 0;
  options.planner.rates.link.latency_s = 0;
  options.capacity_factors = {1.25, 2};
  return options;
}

ExpertExchange chosen_for_experts(const forecast::TrainerOptions& options) {
  const forecast::TrainerPlan plan(options);
  EXPECT_EQ(plan.options().model.moe.exchange, plan.expected().expert_exchange->chosen);
  return plan.options().model.moe.exchange;
}

TEST(exchange, experts_take_the_quicker_form) {
  forecast::TrainerOptions options = experts_over(4);
  // Links decide: 20 slots for each rank, not 64 rows.
  options.planner.rates.link.bytes_per_s = 1e3;
  EXPECT_EQ(chosen_for_experts(options), ExpertExchange::slots);
  // With eight choices nearly every row goes to every rank.
  options.model.moe.topk = 8;
  EXPECT_EQ(chosen_for_experts(options), ExpertExchange::gather);
  options.model.moe.exchange = ExpertExchange::slots;
  EXPECT_EQ(chosen_for_experts(options), ExpertExchange::slots);
  // Passes over memory decide: rows are put into slots, and added from them.
  options = experts_over(4);
  options.model.moe.topk = 8;
  options.planner.rates.link.bytes_per_s = 1e30;
  options.planner.rates.device_bytes_per_s = 1e3;
  EXPECT_EQ(chosen_for_experts(options), ExpertExchange::gather);
}

// 5 exchanges of rows either way: what others have, or what they may need of it.
TEST(exchange, bytes_of_slots_follow_the_class_of_room) {
  const auto bytes = [](std::vector<double> capacity, ExpertExchange exchange) {
    forecast::TrainerOptions options = experts_over(4);
    options.capacity_factors = std::move(capacity);
    options.model.moe.exchange = exchange;
    const forecast::Expected expected = forecast::decide_open_choices(options);
    const auto& forecast = expected.expert_exchange;
    EXPECT_EQ(forecast->forms.size(), 1U);
    return forecast->forms.front().bytes;
  };
  const double all = bytes({}, ExpertExchange::gather);
  EXPECT_EQ(bytes({1.25}, ExpertExchange::gather), all);
  EXPECT_EQ(bytes({}, ExpertExchange::slots), all);
  const layers::ModelConfig model = experts_over(4).model;
  const double row = static_cast<double>(model.width) * 2;
  EXPECT_EQ(all - bytes({1.25}, ExpertExchange::slots), 5 * 3 * (64 - 20) * row);
  EXPECT_EQ(all - bytes({2, 3}, ExpertExchange::slots), 5 * 3 * (64 - 32) * row);
}

TEST(exchange, every_rank_finds_the_same_for_experts) {
  const forecast::Expected first_expected = forecast::decide_open_choices(experts_over(4));
  const auto& first = *first_expected.expert_exchange;
  ASSERT_EQ(first.forms.size(), 2U);
  for (int rank = 1; rank < 4; ++rank) {
    const forecast::Expected own_expected = forecast::decide_open_choices(experts_over(4, rank));
    const auto& own = *own_expected.expert_exchange;
    EXPECT_EQ(own.chosen, first.chosen);
    for (std::size_t i = 0; i < first.forms.size(); ++i)
      EXPECT_EQ(own.forms[i].time_s(), first.forms[i].time_s());
  }
  EXPECT_FALSE(forecast::decide_open_choices(experts_over(1)).expert_exchange);
  forecast::TrainerOptions options = experts_over(4);
  options.model.pattern = std::string(1, '-');
  EXPECT_FALSE(forecast::decide_open_choices(options).expert_exchange);
}

}  // namespace
}  // namespace stowage::ctest
