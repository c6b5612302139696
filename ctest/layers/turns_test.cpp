// Schedules of a pipeline: what each stage does in which order, and that all stages fit together.
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <map>

#include "layers/pipeline.hpp"
#include "layers/timeline.hpp"
#include "parallel/joint_proof.hpp"
#include "tiny_model.hpp"

namespace stowage::ctest {
namespace {

using layers::Turn;
using layers::Turns;

constexpr auto k1F1B = layers::PipelineSchedule::one_forward_one_backward;
constexpr auto kZeroBubble = layers::PipelineSchedule::zero_bubble;

/// "F0 F1 B0 B1", exchanges as "(>s0 <g0)": the stream of 0 is sent, its gradient received.
std::string text(const Turns& turns) {
  std::vector<std::string> words;
  for (const layers::TurnSection& section : turns)
    for (const Turn& turn : section.turns) {
      if (turn.pass != Turn::Pass::exchange) {
        words.push_back(fmt::format("{}{}", "FBWE"[static_cast<int>(turn.pass)], turn.slot));
        continue;
      }
      std::vector<std::string> hops;
      for (const layers::Hop& hop : turn.hops)
        hops.push_back(
            fmt::format("{}{}{}", hop.sends ? '>' : '<', hop.gradient ? 'g' : 's', hop.slot));
      words.push_back(fmt::format("({})", fmt::join(hops, " ")));
    }
  return fmt::format("{}", fmt::join(words, " "));
}

TEST(turns, stages_alternate_when_their_pipeline_is_full) {
  EXPECT_EQ(text(layers::train_in_pipeline({0, 2}, 3, k1F1B)),
            "F0 (>s0) F1 (>s1 <g0) B0 F2 (>s2 <g1) B1 (<g2) B2");
  EXPECT_EQ(text(layers::train_in_pipeline({1, 2}, 3, k1F1B)),
            "(<s0) F0 B0 (>g0 <s1) F1 B1 (>g1 <s2) F2 B2 (>g2)");
  EXPECT_EQ(text(layers::evaluate_in_pipeline({1, 3}, 2)), "(<s0) E0 (>s0 <s1) E1 (>s1)");
}

TEST(turns, weights_fill_what_would_be_waiting) {
  EXPECT_EQ(text(layers::train_in_pipeline({0, 2}, 3, kZeroBubble)),
            "F0 (>s0) F1 (>s1 <g0) B0 W0 F2 (>s2 <g1) B1 W1 (<g2) B2 W2");
  EXPECT_EQ(text(layers::train_in_pipeline({1, 2}, 3, kZeroBubble)),
            "(<s0) F0 B0 (>g0 <s1) F1 B1 (>g1) W0 (<s2) F2 B2 (>g2) W1 W2");
}

TEST(turns, gradients_are_stored_once_and_complete_once) {
  for (const auto schedule : {k1F1B, kZeroBubble})
    for (const int stage : {0, 1, 2}) {
      std::map<Turn::Pass, int> begun, complete;
      const Turns turns = layers::train_in_pipeline({stage, 3}, 5, schedule);
      for (const Turn& turn : turns.front().turns) {
        if (turn.pass == Turn::Pass::exchange) continue;
        EXPECT_EQ(begun[turn.pass] > 0, turn.accumulate);
        EXPECT_EQ(complete[turn.pass], 0);
        EXPECT_EQ(turn.slot, begun[turn.pass]++);
        EXPECT_EQ(turn.weights_later, schedule == kZeroBubble && turn.pass == Turn::Pass::backward);
        complete[turn.pass] += turn.last;
      }
      EXPECT_EQ(begun.size(), schedule == kZeroBubble ? 3U : 2U);
      for (const auto& [pass, number] : begun) {
        EXPECT_EQ(number, 5);
        EXPECT_EQ(complete[pass], 1);
      }
    }
}

/// All stages of a pipeline that does some turns, planned and proved together.
std::vector<std::string> faults(int stages, const std::vector<Turns>& turns, int microbatches) {
  std::vector<parallel::RankTrace> traces;
  for (int stage = 0; stage < stages; ++stage) {
    layers::TrainerOptions options = tiny_options(std::string(8, '-'), execution::Dtype::fp32);
    layers::StepShape shape = options.step;
    shape.capacity = options.capacities.front();
    shape.microbatches = microbatches;
    const auto ranks = parallel::planned_ranks(parallel::fit_grid(stages, 1, 1, 1, stages), stage);
    const layers::Model model(options.model, options.precision, 1, ranks);
    const execution::PersistentLayout layout =
        layers::lay_out_state(model.parameters(), model.states(), options.precision, options.state);
    execution::Program program("train", &layout);
    program.begin_section("prologue");
    const layers::StackedInputs inputs = add_inputs(program, shape, model.stage());
    const auto scale = program.input("loss_scale", execution::Dtype::fp32, {1});
    const auto loss = program.scratch("loss", execution::Dtype::fp32, {2});
    layers::Handles handles;
    layers::TurnRecorder(program, model, handles, {shape, inputs, scale, loss})
        .record(turns[static_cast<std::size_t>(stage)]);
    program.finish();
    const execution::Plan plan = offload::make_plan(program, layout);
    const execution::PlannedProgram planned{&program, &plan};
    execution::require_proven({&planned, 1});
    traces.push_back(parallel::trace_communication(stage, {&planned, 1}));
  }
  return parallel::prove_jointly(traces);
}

std::vector<Turns> schedule(int stages, int microbatches,
                            layers::PipelineSchedule schedule = k1F1B) {
  std::vector<Turns> all;
  for (int stage = 0; stage < stages; ++stage)
    all.push_back(layers::train_in_pipeline({stage, stages}, microbatches, schedule));
  return all;
}

TEST(turns, no_number_of_stages_and_microbatches_can_block) {
  for (const auto order : {k1F1B, kZeroBubble})
    for (const int stages : {2, 3, 4, 8})
      for (const int microbatches : {1, stages - 1, stages, 2 * stages + 1})
        EXPECT_EQ(faults(stages, schedule(stages, microbatches, order), microbatches),
                  std::vector<std::string>())
            << stages << " stages, " << microbatches << " microbatches";
}

/// Index of the n-th exchange of a stage, counted from 0.
std::size_t exchange_at(const std::vector<Turn>& turns, int number) {
  for (std::size_t i = 0; i < turns.size(); ++i)
    if (turns[i].pass == Turn::Pass::exchange && number-- == 0) return i;
  throw std::out_of_range("no such exchange");
}

TEST(turns, microbatches_sent_in_another_order_are_a_fault_by_name) {
  std::vector<Turns> turns = schedule(2, 3);
  std::vector<Turn>& first = turns[0].front().turns;
  ASSERT_EQ(text(turns[0]).substr(0, 22), "F0 (>s0) F1 (>s1 <g0) ");
  std::swap(first[1], first[2]);  // the sizes are the same
  std::swap(first[2].hops[0].slot, first[3].hops[0].slot);
  ASSERT_EQ(text(turns[0]).substr(0, 22), "F0 F1 (>s1) (>s0 <g0) ");
  const std::vector<std::string> found = faults(2, turns, 3);
  ASSERT_FALSE(found.empty());
  EXPECT_NE(found.front().find("rank 0 sends 276 x fp32, stream of microbatch 1"),
            std::string::npos)
      << found.front();
  EXPECT_NE(found.front().find("rank 1 receives 276 x fp32, stream of microbatch 0"),
            std::string::npos)
      << found.front();
}

/// Makes two exchanges of the n-th one of a stage: hop `before` first, then the other.
void split(Turns& turns, int number, std::size_t before) {
  std::vector<Turn>& list = turns.front().turns;
  const std::size_t at = exchange_at(list, number);
  ASSERT_EQ(list[at].hops.size(), 2U);
  Turn first{.pass = Turn::Pass::exchange, .hops = {list[at].hops[before]}};
  list[at].hops.erase(list[at].hops.begin() + static_cast<std::ptrdiff_t>(before));
  list.insert(list.begin() + static_cast<std::ptrdiff_t>(at), std::move(first));
}

TEST(turns, stages_that_wait_for_each_other_are_a_fault) {
  // Either may receive before it sends if the other does both at once; both may not.
  for (const bool one : {false, true})
    for (const bool other : {false, true}) {
      std::vector<Turns> turns = schedule(2, 3);
      if (one) split(turns[0], 1, 1);
      if (other) split(turns[1], 1, 1);
      const std::vector<std::string> found = faults(2, turns, 3);
      EXPECT_EQ(found.empty(), !(one && other)) << text(turns[0]) << ", " << text(turns[1]);
      if (one && other) {
        EXPECT_NE(found.front().find("mb0/pipeline/receive_gradient"), std::string::npos)
            << found.front();
      }
    }
}

/// A forward takes 1 s, backward and its weights as long each; messages take none.
layers::Timeline timeline(int stages, int microbatches, layers::PipelineSchedule order,
                          double exchange_s = 0) {
  const std::vector<layers::PassTimes> times(static_cast<std::size_t>(stages), {1, 1, 1});
  return layers::follow(schedule(stages, microbatches, order), times, exchange_s);
}

TEST(turns, bubbles_are_those_of_the_formula) {
  for (const int stages : {2, 3, 4, 8})
    for (const int microbatches : {stages, 2 * stages + 1, 4 * stages}) {
      const layers::Timeline plain = timeline(stages, microbatches, k1F1B);
      EXPECT_DOUBLE_EQ(plain.time_s, 3.0 * (microbatches + stages - 1));
      EXPECT_NEAR(plain.bubble(), (stages - 1.0) / (microbatches + stages - 1.0), 1e-12);
      // ZB-H1: a third of it is left.
      const layers::Timeline filled = timeline(stages, microbatches, kZeroBubble);
      EXPECT_DOUBLE_EQ(filled.time_s, 3.0 * microbatches + stages - 1)
          << stages << " stages, " << microbatches << " microbatches";
    }
}

TEST(turns, messages_take_time_on_the_way_to_the_last_stage_and_back) {
  EXPECT_DOUBLE_EQ(timeline(4, 1, k1F1B, 0.25).time_s, 4 * 3 + 6 * 0.25);
  EXPECT_GT(timeline(4, 8, k1F1B, 0.25).time_s, timeline(4, 8, k1F1B).time_s);
}

}  // namespace
}  // namespace stowage::ctest
