#include <gtest/gtest.h>

#include "execution/error.hpp"
#include "execution/verifier.hpp"
#include "layers/step.hpp"
#include "offload/cargo.hpp"
#include "tiny_model.hpp"

namespace stowage::ctest {
namespace {

using execution::Decision;

TEST(stage, cuts_divide_a_pattern_and_so_do_equal_shares) {
  EXPECT_EQ(layers::stage_pattern("M-|*E|M", 0, 3), "M-");
  EXPECT_EQ(layers::stage_pattern("M-|*E|M", 1, 3), "*E");
  EXPECT_EQ(layers::stage_pattern("M-|*E|M", 2, 3), "M");
  EXPECT_EQ(layers::stage_pattern("M-*EM", 0, 2), "M-*");
  EXPECT_EQ(layers::stage_pattern("M-*EM", 1, 2), "EM");
  EXPECT_THROW(layers::stage_pattern("M-|*E", 0, 3), execution::Error);
  EXPECT_THROW(layers::stage_pattern("M-", 0, 3), execution::Error);
}

/// One stage of the tiny model, planned: all that is saved may leave.
struct PlannedStage {
  layers::TrainerOptions options = tiny_options("M*-E", execution::Dtype::bf16);
  layers::Model model;
  execution::PersistentLayout layout;
  execution::Program program;
  offload::Choice choice;
  execution::Plan plan;

  PlannedStage(int in_flight, bool offload, std::int64_t keep_bytes)
      : model(options.model, options.precision, 1),
        layout(layers::lay_out_state(model.parameters(), model.states(), options.precision,
                                     options.state)),
        program(record(in_flight)) {
    offload::PlannerOptions planner;
    planner.policy.kind = offload::Policy::Kind::manual;
    planner.policy.min_tensor_bytes = 0;
    planner.policy.keep_unhidden = false;
    planner.policy.keep_bytes = keep_bytes;
    if (offload)
      for (const offload::Cargo& cargo : offload::find_cargo(program)) {
        const std::string& module = program.info(cargo.tensor).module;
        planner.policy.offload.push_back({module, {module}});
      }
    plan = offload::make_plan(program, layout, planner, &choice);
    const execution::PlannedProgram planned{&program, &plan};
    EXPECT_TRUE(execution::verify({&planned, 1}).empty());
  }

  execution::Program record(int in_flight) {
    layers::StepShape shape = options.step;
    shape.capacity = options.capacities.front();
    shape.microbatches = in_flight;
    return layers::record_stage(model, shape, layout);
  }
  std::size_t kept_bytes() const {
    std::size_t bytes = 0;
    for (const offload::Cargo& cargo : offload::find_cargo(program))
      if (plan.decisions[static_cast<std::size_t>(cargo.tensor.id)] == Decision::keep)
        bytes += program.info(cargo.tensor).bytes();
    return bytes;
  }
};

TEST(stage, each_microbatch_in_flight_needs_memory_of_its_own) {
  const PlannedStage one(1, false, 0), two(2, false, 0), four(4, false, 0);
  const std::size_t a = one.plan.bytes[1], b = two.plan.bytes[1], c = four.plan.bytes[1];
  EXPECT_GT(b, a);
  // From two on, each one more adds the same.
  EXPECT_NEAR(static_cast<double>(c - b), 2.0 * static_cast<double>(b - a),
              0.2 * static_cast<double>(c - b));
}

TEST(stage, offload_pays_most_where_most_is_in_flight) {
  const PlannedStage last(1, true, 0), first(4, true, 0);
  const PlannedStage last_kept(1, false, 0), first_kept(4, false, 0);
  EXPECT_EQ(first.kept_bytes(), 0U);
  EXPECT_GT(first_kept.plan.bytes[1] - first.plan.bytes[1],
            last_kept.plan.bytes[1] - last.plan.bytes[1]);
}

TEST(stage, a_rank_keeps_its_share_of_delta_bytes_and_never_more) {
  constexpr std::int64_t kDelta = 3000;
  std::size_t last = 0;
  for (const std::int64_t rank : {0, 1, 2, 3}) {
    const PlannedStage stage(4 - static_cast<int>(rank), true, rank * kDelta);
    EXPECT_LE(stage.kept_bytes(), static_cast<std::size_t>(rank * kDelta));
    EXPECT_GE(stage.kept_bytes(), last);
    last = stage.kept_bytes();
    EXPECT_EQ(stage.kept_bytes() > 0, rank > 0);
  }
}

}  // namespace
}  // namespace stowage::ctest
