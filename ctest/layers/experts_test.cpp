// Ranks that share experts have room for a class of rows: a step that needs more changes nothing,
// says how many it needs, and done again with more room leaves the bits of one that had it at once.
#include <gtest/gtest.h>

#include <fmt/core.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <string>

#include "kernels/moe/router.hpp"
#include "layers/mixers/experts.hpp"
#include "parallel/proof/require_joint_proof.hpp"
#include "parallel/transport/connect.hpp"
#include "parallel/transport/host_transport.hpp"
#include "tiny_model.hpp"

namespace stowage::ctest {
namespace {

using execution::Dtype;
using Exchange = layers::ModelConfig::Moe::Exchange;

struct Case {
  int tensor = 1, expert = 1, pipeline = 1;
  bool zero = false;
  int microbatches = 1;
  Exchange exchange = Exchange::gather;
};

const parallel::Communicator& world() {
  static const parallel::Communicator all = parallel::Communicator::world();
  return all;
}

/// Ways in which all ranks share experts.
std::vector<Case> cases(Exchange exchange) {
  std::vector<Case> all;
  if (world().size() == 2)
    all = {{.expert = 2}, {.expert = 2, .zero = true, .microbatches = 3}, {.tensor = 2}};
  else
    all = {{.expert = 4, .microbatches = 2},
           {.tensor = 2, .expert = 2, .zero = true},
           {.expert = 2},
           {.expert = 2, .pipeline = 2, .microbatches = 3}};
  for (Case& c : all) c.exchange = exchange;
  return all;
}

/// @param capacity of the first classes of room
forecast::TrainerOptions options_of(const Case& c, std::vector<double> capacity,
                                    Dtype dtype = Dtype::bf16) {
  forecast::TrainerOptions options = tiny_options("-E*E", dtype);
  options.model.vocabulary = 16;
  options.model.mlp.ffn = 12;
  options.model.moe = {.experts = 8, .topk = 3, .ffn = 7, .shared_ffn = 8, .scaling = 1.5};
  options.model.moe.exchange = c.exchange;
  options.step.tokens = options.step.sequence = 24;
  options.step.microbatches = c.microbatches;
  options.capacity_factors = std::move(capacity);
  options.sharing.zero = c.zero;
  options.evaluation_microbatches = 1;
  options.sharing.ranks = parallel::connect(
      world(), parallel::fit_grid(world().size(), c.tensor, 1, c.expert, c.pipeline),
      parallel::make_host_transport);
  return options;
}

std::string text(const Case& c) {
  return fmt::format("tensor {} expert {} pipeline {} zero {} microbatches {}", c.tensor, c.expert,
                     c.pipeline, c.zero, c.microbatches);
}

TinyRun::Part part_of(TinyRun& run) {
  const parallel::SequencePart part = run.trainer().plan().options().sharing.ranks.sequences();
  return {part.index, part.parts};
}

/// What a step may change: all that outlives it but gradients.
std::map<std::string, std::vector<std::byte>> kept(TinyRun& run) {
  std::map<std::string, std::vector<std::byte>> all;
  const execution::PersistentLayout& layout = run.trainer().plan().layout();
  for (const execution::Bucket& bucket : layout.buckets())
    for (const std::string& name : bucket.tensors) {
      if (!layout.has(name) || layout.info(name).lifetime == execution::Lifetime::gradient)
        continue;
      all[name].resize(layout.info(name).bytes());
      run.trainer().device().read(name, all[name]);
    }
  return all;
}

void expect_done_again_in_a_larger_class(Exchange exchange) {
  for (const Case& c : cases(exchange)) {
    SCOPED_TRACE(text(c));
    TinyRun small(options_of(c, {0.25, 1.5})), large(options_of(c, {}));
    ASSERT_EQ(large.trainer().plan().capacity_classes(), 1);
    ASSERT_EQ(small.trainer().plan().capacity_classes(), 3);
    for (int step = 0; step < 2; ++step) {
      large.train(step, 1e-2, part_of(large));
      ASSERT_TRUE(large.step_ok());
      const std::vector<std::int32_t> rows = large.expert_rows();
      EXPECT_EQ(rows[0], 0);
      const auto before = kept(small);
      small.train(step, 1e-2, part_of(small), 0);
      EXPECT_FALSE(small.step_ok());
      EXPECT_GT(small.expert_rows()[0], 0);
      EXPECT_LE(small.expert_rows()[0], world().size());
      // With shards, a program gathers what the step before has left of the others.
      if (step == 0 || !c.zero) {
        EXPECT_EQ(kept(small), before);
      }
      const int wanted = small.trainer().plan().capacity_class({rows[1], rows[3]});
      EXPECT_GT(wanted, 0);
      small.train(step, 1e-2, part_of(small), wanted);
      EXPECT_TRUE(small.step_ok());
      EXPECT_EQ(small.expert_rows(), rows);
      EXPECT_EQ(small.loss(), large.loss());
      EXPECT_EQ(small.grad_norm(), large.grad_norm());
      EXPECT_EQ(small.state(), large.state());
      if (testing::Test::HasFailure()) return;
    }
  }
}

TEST(experts, a_step_without_capacity_changes_nothing_and_leaves_the_bits_of_one_with_capacity) {
  expect_done_again_in_a_larger_class(Exchange::gather);
}

TEST(experts, a_step_without_slots_changes_nothing_and_leaves_the_bits_of_one_with_slots) {
  expect_done_again_in_a_larger_class(Exchange::slots);
}

// Every rank adds the same numbers in the same order, however they came.
TEST(experts, rows_by_slots_leave_the_bits_of_gathered_rows) {
  for (const Dtype dtype : {Dtype::bf16, Dtype::fp32, Dtype::fp64})
    for (const Case& c : cases(Exchange::gather)) {
      SCOPED_TRACE(text(c));
      Case other = c;
      other.exchange = Exchange::slots;
      TinyRun gathered(options_of(c, {1.5}, dtype)), sent(options_of(other, {1.5}, dtype));
      for (int step = 0; step < 2; ++step) {
        gathered.train_with_capacity(step, 1e-2, part_of(gathered));
        sent.train_with_capacity(step, 1e-2, part_of(sent));
        EXPECT_EQ(sent.loss(), gathered.loss());
        EXPECT_EQ(sent.grad_norm(), gathered.grad_norm());
        EXPECT_EQ(sent.state(), gathered.state());
        EXPECT_EQ(sent.evaluate(step, part_of(sent)), gathered.evaluate(step, part_of(gathered)));
        if (testing::Test::HasFailure()) return;
      }
    }
}

/// All rows that experts of a layer save leave for the host.
void save_on_the_host(forecast::TrainerOptions& options) {
  offload::Policy& policy = options.planner.policy;
  policy.kind = offload::Policy::Kind::manual;
  policy.offload = {{"moe_act", {"moe_act"}}};
  policy.min_tensor_bytes = 0;
  policy.keep_exposed = false;
}

// There is room for the rows of all ranks. Of much room copies move the rows that there are.
TEST(experts, saved_rows_leave_by_their_count_and_leave_the_bits_of_those_kept) {
  for (const Exchange exchange : {Exchange::gather, Exchange::slots})
    for (const Case& c : cases(exchange))
      for (const char* const way : {"op by op", "audit", "graph"}) {
        SCOPED_TRACE(text(c) + " " + way);
        TinyRun kept(options_of(c, {}));
        forecast::TrainerOptions options = options_of(c, {});
        save_on_the_host(options);
        // An audit fills what comes back with NaN before: rows without content are never read.
        options.executor.audit = way == std::string("audit");
        if (options.executor.audit) options.planner.alignment = 4096;
        if (way == std::string("graph"))
          options.planner.graphs.mode = offload::GraphOptions::Mode::step;
        TinyRun moved(options);
        constexpr int kSteps = 2, kTokens = 21;  // those of documents
        for (int step = 0; step < kSteps; ++step) {
          kept.train(step, 1e-2, part_of(kept));
          moved.train(step, 1e-2, part_of(moved));
          EXPECT_EQ(moved.loss(), kept.loss());
          EXPECT_EQ(moved.state(), kept.state());
        }
        const execution::ExecutorCounters counters =
            moved.trainer().training(1).executor.counters();
        EXPECT_EQ(counters.bytes_out, counters.bytes_in);
        EXPECT_GT(counters.copies_out, 0);
        const double rows = world().sum(static_cast<double>(counters.bytes_out)) / (7 * 2);
        const int sequences = world().size() / (c.tensor * c.pipeline) * c.microbatches;
        const int sharers = c.tensor * c.expert;
        const bool counted = sharers >= execution::kCountedRoom;
        EXPECT_EQ(rows, kSteps * 2 * sequences * (counted ? kTokens : 24 * sharers) * 3);
      }
}

// Backward of a microbatch beside forward of the next: the same ops, in another order.
TEST(experts, microbatches_side_by_side_leave_the_bits_of_those_in_turn) {
  using Mode = offload::GraphOptions::Mode;
  struct Way {
    bool offload;
    Mode mode;
  };
  for (Case c : cases(Exchange::gather))
    for (const auto& [offload, mode] :
         {Way{false, Mode::off}, Way{true, Mode::scopes}, Way{true, Mode::step}}) {
      if (c.pipeline > 1) continue;
      c.microbatches = 3;
      SCOPED_TRACE(text(c));
      TinyRun in_turn(options_of(c, {1.5}));
      forecast::TrainerOptions options = options_of(c, {1.5});
      options.sharing.overlap_microbatches = true;
      options.planner.graphs.mode = mode;
      if (offload) save_on_the_host(options);
      TinyRun overlapping(options);
      parallel::require_joint_proof(world(), overlapping.trainer().plan().programs());
      for (int step = 0; step < 2; ++step) {
        in_turn.train_with_capacity(step, 1e-2, part_of(in_turn));
        overlapping.train_with_capacity(step, 1e-2, part_of(overlapping));
        EXPECT_EQ(overlapping.loss(), in_turn.loss());
        EXPECT_EQ(overlapping.grad_norm(), in_turn.grad_norm());
        EXPECT_EQ(overlapping.state(), in_turn.state());
        if (testing::Test::HasFailure()) return;
      }
    }
}

// What a step is expected to take where exchanges take as long as compute.
TEST(experts, exchanges_overlap_the_other_microbatch) {
  forecast::TrainerOptions options = options_of({.expert = world().size(), .microbatches = 4}, {});
  options.planner.rates.op_s = 1e-5;
  options.planner.rates.link = {5e-5, 1e9};
  const auto time_s = [&](bool overlap) {
    options.sharing.overlap_microbatches = overlap;
    return forecast::TrainerPlan(options).training(0).front()->plan.time_s;
  };
  EXPECT_LT(time_s(true) / time_s(false), 0.9);
}

// The rows of every expert have room, but each row has its experts on different ranks, and so needs
// more slots than rows whose experts are drawn.
TEST(experts, slots_alone_may_be_too_few) {
  for (const Case& c : cases(Exchange::slots)) {
    if (c.tensor > 1) continue;
    SCOPED_TRACE(text(c));
    forecast::TrainerOptions options = options_of(c, {1});
    options.model.moe.topk = c.expert == 2 ? 2 : 3;
    options.model.moe.frozen_tokens = options.step.tokens;
    TinyRun run(options);
    run.set_documents({0, 22});
    run.freeze_routing([ranks = c.expert](std::int32_t t, std::int32_t r) {
      return (t + 1 + r) % ranks * (8 / ranks);
    });
    run.train(0, 1e-2, part_of(run), 0);
    EXPECT_FALSE(run.step_ok());
    const std::vector<std::int32_t> wanted = run.expert_rows();
    const forecast::TrainerPlan& plan = run.trainer().plan();
    const kernels::ExpertCapacity room = plan.training(0).front()->recorded.expert_capacity;
    EXPECT_EQ(wanted[0], world().size());
    EXPECT_LE(wanted[1], room.rows);
    EXPECT_GT(wanted[3], room.slots);
    EXPECT_EQ(plan.capacity_class({wanted[1], wanted[3]}), 1);
    run.train(0, 1e-2, part_of(run), 1);
    EXPECT_TRUE(run.step_ok());
    EXPECT_EQ(run.expert_rows()[3], wanted[3]);
  }
}

// Rows of the busiest rank and expert, by the draws of both layers of experts. Ranks with other
// sequences draw alike.
TEST(experts, a_forced_load_is_the_one_that_its_layers_draw) {
  for (const auto load : {kernels::ForcedLoad::balanced, kernels::ForcedLoad::zipf})
    for (const Case& c : cases(Exchange::gather)) {
      SCOPED_TRACE(text(c));
      forecast::TrainerOptions options = options_of(c, {});
      options.model.moe.forced_load = load;
      TinyRun run(options);
      run.train(0, 1e-2, part_of(run));
      constexpr int kTokens = 21;  // those of documents
      const int own = 8 / (c.tensor * c.expert);
      std::int32_t of_rank = 0, of_expert = 0;
      for (const int layer : {1, 3}) {
        std::vector<std::int32_t> indices(kTokens * 3), rows(8);
        const std::vector<float> logits(kTokens * 8);
        kernels::RouterSelect{.tokens = kTokens,
                              .options = {.experts = 8, .topk = 3, .load = load, .layer = layer},
                              .starts = 1,
                              .storage = execution::Dtype::fp32}
            .reference<float>({.logits = logits.data(),
                               .bias = nullptr,
                               .cu_seqlens = &kTokens,
                               .indices = indices.data(),
                               .weights = nullptr});
        for (const std::int32_t e : indices) rows[static_cast<std::size_t>(e)] += c.expert;
        of_expert = std::max(of_expert, std::ranges::max(rows));
        for (auto first = rows.begin(); first != rows.end(); first += own)
          of_rank = std::max(of_rank, std::accumulate(first, first + own, 0));
      }
      EXPECT_EQ(run.expert_rows()[1], of_rank);
      EXPECT_EQ(run.expert_rows()[2], of_expert);
    }
}

// Of 24 tokens with 3 of 8 experts each, so many are expected to have some of half of them (a
// quarter): 1 - (4 3 2) / (8 7 6) of them, and 1 - (6 5 4) / (8 7 6).
TEST(experts, slots_are_a_part_of_the_rows_expected_and_never_more_than_all) {
  const auto slots_of = [](int expert, int tensor, double share) {
    const forecast::TrainerOptions options = options_of({.exchange = Exchange::slots}, {});
    return layers::expert_capacity(
               options.model,
               parallel::planned_ranks(parallel::fit_grid(expert * tensor, tensor, 1, expert, 1),
                                       0),
               24, share)
        .slots;
  };
  EXPECT_EQ(slots_of(2, 1, 0.5), 12);
  EXPECT_EQ(slots_of(2, 1, 1), 23);
  EXPECT_EQ(slots_of(2, 1, 1.25), 24);
  EXPECT_EQ(slots_of(4, 1, 1), 16);
  EXPECT_EQ(slots_of(4, 1, 1.25), 20);
  EXPECT_EQ(slots_of(4, 1, 0), 24);
  EXPECT_EQ(slots_of(2, 2, 1), 8);
  EXPECT_EQ(slots_of(1, 1, 1), 0);
}

TEST(experts, room_is_a_part_of_the_balanced_rows_and_never_more_than_all) {
  for (const Case& c : cases(Exchange::gather)) {
    const forecast::TrainerOptions options = options_of(c, {0.25, 1.5, 64});
    const forecast::TrainerPlan plan(options);
    const int ranks = c.tensor * c.expert;
    const std::int64_t balanced = 24 / c.tensor * 3;
    ASSERT_EQ(plan.capacity_classes(), 3);
    EXPECT_EQ(plan.training(0).front()->recorded.expert_capacity.rows, (balanced + 3) / 4);
    EXPECT_EQ(plan.training(1).front()->recorded.expert_capacity.rows, balanced * 3 / 2);
    EXPECT_EQ(plan.training(2).front()->recorded.expert_capacity.rows, balanced * ranks);
    EXPECT_EQ(plan.capacity_class({0}), 0);
    EXPECT_EQ(plan.capacity_class({(balanced + 3) / 4 + 1}), 1);
    EXPECT_EQ(plan.capacity_class({balanced * ranks}), 2);
    const auto bytes_of = [](const forecast::TrainerPlan::Training& training, const char* module) {
      std::size_t bytes = 0;
      for (const execution::TensorInfo& info : training.recorded.program.tensors())
        if (info.module == module) bytes += info.bytes();
      return bytes;
    };
    for (int i = 0; i < 3; ++i) {
      const auto& training = *plan.training(i).front();
      const std::size_t row = 7 * 2;  // of an expert's hidden layer, in bf16
      EXPECT_EQ(bytes_of(training, "moe_act") % (row * training.recorded.expert_capacity.rows), 0U);
    }
  }
}

// The larger classes take no memory beyond the smallest's where what they save can move, unless a
// budget has more.
TEST(experts, larger_classes_fit_into_the_memory_of_the_smallest) {
  forecast::TrainerOptions options = options_of(cases(Exchange::gather).front(), {1});
  options.sharing.ranks = parallel::planned_ranks(parallel::fit_grid(2, 1, 1, 2, 1), 0);
  options.model.pattern = "EEEEEEEEEEEE";
  options.model.moe.ffn = 64;
  options.planner.policy.min_tensor_bytes = 1;
  const forecast::TrainerPlan plan(options);
  const auto bytes = [&](int capacity_class) {
    return plan.training(capacity_class)
        .front()
        ->plan.bytes[static_cast<int>(execution::Region::transient)];
  };
  EXPECT_LE(bytes(1), bytes(0));
  EXPECT_EQ(plan.transient_bytes(), bytes(0));
  plan.require_proven();
  forecast::TrainerOptions with_budget = options;
  with_budget.planner.policy.device_budget_bytes = std::int64_t{1} << 30;
  const forecast::TrainerPlan roomy(with_budget);
  options.capacity_factors = {};
  const forecast::TrainerPlan alone(options);
  EXPECT_LT(plan.transient_bytes(), alone.transient_bytes());
  EXPECT_GE(roomy.transient_bytes(), alone.transient_bytes());
  EXPECT_EQ(roomy.training(1).front()->plan.bytes[static_cast<int>(execution::Region::host)], 0U);
  roomy.require_proven();
}

}  // namespace
}  // namespace stowage::ctest
