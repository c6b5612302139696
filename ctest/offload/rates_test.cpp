// How long ops, links and what runs beside each other are said to take.
#include <gtest/gtest.h>

#include "offload/planner.hpp"
#include "offload/prediction.hpp"

namespace stowage::ctest {
namespace {

using namespace execution;

TEST(rates, memory_binds_an_op_by_the_part_of_its_time_that_its_bytes_take) {
  Program program("ops");
  program.begin_section("only");
  for (const auto& [flops, bytes] : {std::pair(0.0, 1e9), {1e12, 0.0}, {7.05e11, 1.8444e9}}) {
    Op op;
    op.name = "op";
    op.cost = {flops, bytes};
    op.launch = [](Queue&, std::span<const View>) {};
    program.append(std::move(op));
  }
  program.finish();
  const offload::Slowdown slowdown{1.5, 2.5};
  for (const double scale : {0.5, 1.0, 3.0}) {
    offload::Rates rates;
    rates.op_s = 0;
    rates.scale = scale;
    EXPECT_DOUBLE_EQ(rates.with_copies(program, 0, slowdown), 2.5);
    EXPECT_DOUBLE_EQ(rates.with_copies(program, 1, slowdown), 1.5);
    EXPECT_NEAR(rates.with_copies(program, 2, slowdown), 2.0, 1e-3);
    EXPECT_DOUBLE_EQ(rates.time_s(program, 1), scale * 1e12 / rates.flops_per_s);
    rates.measured_s = {2e9 / (rates.device_bytes_per_s * rates.memory_efficiency)};
    EXPECT_DOUBLE_EQ(rates.with_copies(program, 0, slowdown), 2.0);
  }
}

TEST(rates, an_efficiency_is_also_of_kinds_that_go_on) {
  Program program("ops");
  program.begin_section("only");
  const char* names[] = {"mb0/layers.2.attn/core", "mb0/layers.2.attn/core_late",
                         "mb0/layers.2.attn/core_backward_late", "mb1/layers.0.attn/cores", "core"};
  for (const char* name : names) {
    Op op;
    op.name = name;
    op.cost = {1e12, 0};
    op.launch = [](Queue&, std::span<const View>) {};
    program.append(std::move(op));
  }
  program.finish();
  offload::Rates rates;
  rates.op_s = 0;
  rates.efficiency = {{"attn/core", 0.5}, {"attn/core_backward", 0.25}};
  const double whole_s = 1e12 / rates.flops_per_s;
  for (const auto& [op, part] : {std::pair(0, 0.5), {1, 0.5}, {2, 0.25}, {3, 1.0}, {4, 1.0}})
    EXPECT_DOUBLE_EQ(rates.time_s(program, op), whole_s / part) << names[op];
}

TEST(rates, kernels_start_behind_one_another_and_some_bytes_pass_while_no_product_runs) {
  offload::Rates rates;
  rates.flops_per_s = 10;
  rates.device_bytes_per_s = 5;
  rates.memory_efficiency = 1;
  rates.op_s = 1;
  EXPECT_EQ(rates.roofline_s({.flops = 20}), 3);
  EXPECT_EQ(rates.roofline_s({.flops = 20, .bytes = 15}), 4);
  EXPECT_EQ(rates.roofline_s({.flops = 20, .bytes = 15, .idle_flops = 30}), 6);
  EXPECT_EQ(rates.roofline_s({.flops = 20, .bytes = 15, .idle_flops = 30, .apart_bytes = 10}), 8);
  EXPECT_EQ(rates.roofline_s({.flops = 20, .bytes = 15, .apart_bytes = 10, .more_kernels = 3}), 9);
}

TEST(rates, a_link_of_a_kind_counts_before_that_of_its_group_and_that_before_any) {
  offload::Rates rates;
  rates.link = {1, 1};
  EXPECT_EQ(rates.link_of("data", "all_reduce").latency_s, 1);
  rates.links = {{"any", {2, 1}}};
  EXPECT_EQ(rates.link_of("data", "all_reduce").latency_s, 2);
  rates.links["any all_reduce"] = {3, 1};
  EXPECT_EQ(rates.link_of("data", "all_reduce").latency_s, 3);
  EXPECT_EQ(rates.link_of("data", "all_gather").latency_s, 2);
  rates.links["data"] = {4, 1};
  EXPECT_EQ(rates.link_of("data", "all_reduce").latency_s, 4);
  EXPECT_EQ(rates.link_of("tensor", "all_reduce").latency_s, 3);
  rates.links["data all_reduce"] = {5, 1};
  EXPECT_EQ(rates.link_of("data", "all_reduce").latency_s, 5);
  EXPECT_EQ(rates.with_compute_s("data", "all_reduce", 1), 6);
  rates.links_with_compute = {{"any all_reduce", {7, 1}}, {"any all_gather", {1, 1}}};
  EXPECT_EQ(rates.with_compute_s("data", "all_reduce", 1), 8);
  EXPECT_EQ(rates.with_compute_s("tensor", "all_gather", 1), 3) << "never quicker than alone";
}

/// An exchange of 4 s alone and 8 s beside compute, beside one op of compute of so many seconds
/// that comes behind it, and then one that waits for it.
double with_an_exchange_s(double with_compute_s) {
  Program program("ops");
  const Tensor rows = program.scratch("rows", execution::Dtype::fp32, {4});
  const Tensor other = program.scratch("other", execution::Dtype::fp32, {4});
  program.begin_section("only");
  const auto add = [&](const char* name, execution::Lane lane, execution::Cost cost,
                       std::vector<execution::Use> uses) {
    Op op;
    op.name = name;
    op.lane = lane;
    op.cost = cost;
    op.uses = std::move(uses);
    op.launch = [](Queue&, std::span<const View>) {};
    if (lane == execution::Lane::comm) {
      op.communication.emplace();
      op.communication->kind = "all_reduce";
      op.communication->group = "data";
    }
    program.append(std::move(op));
  };
  using execution::Access;
  add("exchange", execution::Lane::comm, {0, 4}, {{rows, Access::write}});
  add("beside", execution::Lane::compute, {with_compute_s, 0}, {{other, Access::write}});
  add("after", execution::Lane::compute, {0, 0}, {{rows, Access::read}, {other, Access::read}});
  program.finish();
  offload::PlannerOptions options;
  options.rates.op_s = 1e-9;
  options.rates.flops_per_s = 1;
  options.rates.links = {{"any", {0, 1}}};
  options.rates.links_with_compute = {{"any", {0, 0.5}}};
  const execution::PersistentLayout layout;
  const Plan plan = offload::make_plan(program, layout, options);
  return offload::predict(program, plan, options.rates).time_s;
}

TEST(prediction, an_exchange_is_slower_only_with_compute) {
  EXPECT_NEAR(with_an_exchange_s(0), 4, 1e-6);
  EXPECT_NEAR(with_an_exchange_s(2), 5, 1e-6);  // a quarter of it in 2 s, the rest in 3
  EXPECT_NEAR(with_an_exchange_s(6), 7, 1e-6);
  EXPECT_NEAR(with_an_exchange_s(100), 100, 1e-6);
}

}  // namespace
}  // namespace stowage::ctest
