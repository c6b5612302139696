// Schedules of a pipeline: what each stage does in which order, and that all stages fit together.
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <map>

#include "forecast/pipeline/delayed_weights.hpp"
#include "forecast/pipeline/timeline.hpp"
#include "layers/schedule/pipeline.hpp"
#include "layers/schedule/side_by_side.hpp"
#include "parallel/proof/joint_proof.hpp"
#include "tiny_model.hpp"

namespace stowage::ctest {
namespace {

using layers::Pass;
using layers::RankPasses;

constexpr auto k1F1B = layers::PipelineSchedule::one_forward_one_backward;
constexpr auto kZeroBubble = layers::PipelineSchedule::zero_bubble;
constexpr auto kInterleaved = layers::PipelineSchedule::interleaved;

std::string marks(int chunk) { return std::string(static_cast<std::size_t>(chunk), '\''); }

/// "F0 F1' B1' B0", of the rank's second stage with ', exchanges as "(>s0 <g0)": the stream of 0 is
/// sent, its gradient received.
std::string text(const RankPasses& passes, bool exchanges = true) {
  std::vector<std::string> words;
  for (const layers::PassSection& section : passes)
    for (const Pass& pass : section.passes) {
      if (pass.kind != Pass::Kind::exchange) {
        words.push_back(fmt::format("{}{}{}", "FBWE"[static_cast<int>(pass.kind)], pass.slot,
                                    marks(pass.chunk)));
        continue;
      }
      if (!exchanges) continue;
      std::vector<std::string> transfers;
      for (const layers::StageTransfer& transfer : pass.transfers)
        transfers.push_back(fmt::format("{}{}{}{}", transfer.sends ? '>' : '<',
                                        transfer.gradient ? 'g' : 's', transfer.slot,
                                        marks(transfer.chunk)));
      words.push_back(fmt::format("({})", fmt::join(transfers, " ")));
    }
  return fmt::format("{}", fmt::join(words, " "));
}

std::string without_exchanges(const RankPasses& passes) { return text(passes, false); }

TEST(passes, stages_alternate_when_their_pipeline_is_full) {
  const std::vector<RankPasses> two = layers::train_in_pipeline({2}, 3, k1F1B);
  EXPECT_EQ(text(two[0]), "F0 (>s0) F1 (>s1) (<g0) B0 F2 (>s2 <g1) B1 (<g2) B2");
  EXPECT_EQ(text(two[1]), "(<s0) F0 (<s1) B0 (>g0) F1 B1 (>g1 <s2) F2 B2 (>g2)");
  EXPECT_EQ(text(layers::evaluate_in_pipeline({3}, 2)[1]), "(<s0) E0 (>s0 <s1) E1 (>s1)");
}

TEST(passes, backward_overlaps_forward_of_the_next) {
  const RankPasses three = layers::train_side_by_side(3);
  EXPECT_EQ(text(three), "F0 B0 F1 B1 F2 B2");
  for (const Pass& pass : three.front().passes) {
    EXPECT_EQ(pass.overlapping, pass.kind == Pass::Kind::forward && pass.slot > 0);
    EXPECT_EQ(pass.accumulate, pass.slot > 0);
    EXPECT_EQ(pass.last, pass.kind == Pass::Kind::backward && pass.slot == 2);
  }
  EXPECT_EQ(text(layers::train_side_by_side(1)), "F0 B0");
}

TEST(passes, leaves_of_several_microbatches_are_sections_of_their_own) {
  const auto sections = [](const RankPasses& passes) {
    std::string all;
    for (const layers::PassSection& section : passes)
      all += fmt::format("{} x {}, slot {}; ", section.name, section.repeat,
                         section.passes.front().slot);
    return all;
  };
  EXPECT_EQ(sections(layers::train_one_by_one(8)),
            "first x 1, slot 0; body x 6, slot 1; last x 1, slot 2; ");
  EXPECT_EQ(sections(layers::train_one_by_one(8, 8)), sections(layers::train_one_by_one(8)));
  const RankPasses two = layers::train_one_by_one(8, 4);
  EXPECT_EQ(sections(two),
            "leaf0/first x 1, slot 0; leaf0/body x 2, slot 1; leaf0/last x 1, slot 2; "
            "leaf1/first x 1, slot 3; leaf1/body x 2, slot 4; leaf1/last x 1, slot 5; ");
  EXPECT_EQ(text(layers::train_one_by_one(4, 2)), "F0 B0 F2 B2 F3 B3 F5 B5");
  for (const layers::PassSection& section : two)
    for (const Pass& pass : section.passes) {
      EXPECT_EQ(pass.accumulate, pass.slot > 0);
      EXPECT_EQ(pass.last, pass.slot == 5);
    }
}

/// A program of ops that are told as "a1>x" (writes x), "a2<x" (reads it), "a3=x" (updates it);
/// those in capitals are exchanges.
struct Told {
  execution::Program program{"told"};
  std::map<char, execution::Tensor> tensors;

  void append(const std::string& op) {
    const char what = op.back();
    if (!tensors.contains(what))
      tensors[what] = program.scratch(std::string(1, what), execution::Dtype::fp32, {1});
    using execution::Access;
    const char how = op[op.size() - 2];
    const Access access = how == '>' ? Access::write : how == '<' ? Access::read : Access::update;
    execution::Op made;
    made.name = op.substr(0, op.size() - 2);
    made.lane = std::isupper(op[0]) ? execution::Lane::comm : execution::Lane::compute;
    made.uses = {{tensors[what], access}};
    program.append(std::move(made));
  }

  static std::string side_by_side(const std::vector<std::string>& first,
                                  const std::vector<std::string>& second) {
    Told told;
    told.append("p>0");
    for (const auto& op : first) told.append(op);
    for (const auto& op : second) told.append(op);
    layers::put_side_by_side(told.program, 1, 1 + static_cast<int>(first.size()));
    std::vector<std::string> names;
    for (const execution::Op& op : told.program.ops()) names.push_back(op.name);
    return fmt::format("{}", fmt::join(names, " "));
  }
};

TEST(passes, passes_side_by_side_alternate_where_one_waits_for_an_exchange) {
  const std::vector<std::string> first = {"a1>u", "A2>x", "a3>v", "a4<x", "A5>y", "a6<y"};
  EXPECT_EQ(Told::side_by_side(first, {"b1>k", "B2>l", "b3<l", "b4>m"}),
            "p a1 A2 a3 b1 B2 a4 A5 b3 b4 a6");
  // Without exchanges of its own the second does all that it has beside the first one's.
  EXPECT_EQ(Told::side_by_side(first, {"b1>k", "b2>l"}), "p a1 A2 a3 b1 b2 a4 A5 a6");
  // What both use stays in order: b2 has to wait for a6, b1 for a3.
  EXPECT_EQ(Told::side_by_side(first, {"b1=v", "b2>y"}), "p a1 A2 a3 b1 a4 A5 a6 b2");
  EXPECT_EQ(Told::side_by_side(first, {"b1=z", "b2<0"}), "p a1 A2 a3 b1 b2 a4 A5 a6");
}

TEST(passes, groups_of_microbatches_go_through_all_stages_of_a_rank) {
  const std::vector<RankPasses> two = layers::train_in_pipeline({2, 2}, 4, kInterleaved);
  EXPECT_EQ(without_exchanges(two[0]), "F0 F1 F0' F1' F2 B0' F3 B1' F2' B0 F3' B1 B2' B3' B2 B3");
  EXPECT_EQ(without_exchanges(two[1]), "F0 F1 F0' B0' F1' B1' F2 B0 F3 B1 F2' B2' F3' B3' B2 B3");
  EXPECT_EQ(without_exchanges(layers::evaluate_in_pipeline({2, 2}, 3)[0]), "E0 E1 E0' E1' E2 E2'");
}

TEST(passes, weights_fill_what_would_be_waiting) {
  const std::vector<RankPasses> two = layers::train_in_pipeline({2}, 3, kZeroBubble);
  EXPECT_EQ(without_exchanges(two[0]), "F0 F1 B0 F2 B1 B2");
  EXPECT_EQ(without_exchanges(two[1]), "F0 B0 F1 B1 W0 F2 B2 W1 W2");
  const std::vector<RankPasses> fewer = layers::train_in_pipeline({2}, 3, kZeroBubble, {}, {1, 1});
  EXPECT_EQ(without_exchanges(fewer[0]), "F0 F1 B0 W0 F2 B1 W1 B2 W2");
  EXPECT_EQ(without_exchanges(fewer[1]), "F0 B0 W0 F1 B1 W1 F2 B2 W2");
  EXPECT_EQ(without_exchanges(layers::train_in_pipeline({2}, 3, kZeroBubble, {}, {0, 0})[1]),
            without_exchanges(layers::train_in_pipeline({2}, 3, k1F1B)[1]));
}

/// The bytes of four ranks that are alike.
std::vector<forecast::HeldBytes> alike(forecast::HeldBytes bytes) { return {4, bytes}; }

TEST(passes, weights_wait_for_as_many_microbatches_as_1f1b_has_memory_for) {
  using Counts = std::vector<int>;
  using Bytes = std::vector<double>;
  // As much waits as was in flight: ranks hold four microbatches, like the first in 1F1B.
  const auto even = forecast::delay_weights(alike({2, 2, 2}), 8, 0);
  EXPECT_EQ(even.bound_bytes, 8);
  EXPECT_EQ(even.microbatches, (Counts{0, 2, 3, 4}));
  EXPECT_EQ(even.held_bytes, (Bytes{8, 8, 8, 8}));
  // What waits is half as much again: 3 * 2 - 2 + 3 and so on; with the second, more than 8.
  const auto wide = forecast::delay_weights(alike({2, 3, 3}), 8, 0);
  EXPECT_EQ(wide.microbatches, (Counts{0, 1, 2, 2}));
  EXPECT_EQ(wide.held_bytes, (Bytes{8, 7, 8, 6}));
  // A backward that holds too much by itself leaves nothing for later.
  EXPECT_EQ(forecast::delay_weights(alike({2, 9, 1}), 8, 0).microbatches, (Counts{0, 0, 0, 0}));
  // With few microbatches no rank holds more than these.
  EXPECT_EQ(forecast::delay_weights(alike({2, 2, 2}), 1, 0).held_bytes, (Bytes{2, 2, 2, 2}));
}

TEST(passes, a_bound_of_bytes_keeps_weights_from_waiting) {
  for (const double bound : {1.0, 6.0, 9.0, 12.0, 30.0}) {
    const auto found = forecast::delay_weights(alike({2, 4, 3}), 8, bound);
    EXPECT_EQ(found.bound_bytes, bound);
    const auto passes = layers::train_in_pipeline({4}, 8, kZeroBubble, {}, found.microbatches);
    const auto plain = layers::train_in_pipeline({4}, 8, k1F1B);
    for (std::size_t rank = 0; rank < 4; ++rank) {
      EXPECT_EQ(found.held_bytes[rank], forecast::most_held(passes[rank], {2, 4, 3}));
      EXPECT_LE(found.held_bytes[rank],
                std::max(bound, forecast::most_held(plain[rank], {2, 4, 3})));
      const int most = layers::most_delayed(static_cast<int>(rank));
      EXPECT_LE(found.microbatches[rank], most);
      if (bound == 30) {
        EXPECT_EQ(found.microbatches[rank], most);
      }
    }
    if (bound == 1) {
      EXPECT_EQ(found.microbatches, std::vector<int>(4, 0));
    }
  }
}

TEST(passes, gradients_are_stored_once_and_complete_once) {
  using layers::PipelineShape;
  for (const auto& [shape, schedule] : {std::pair{PipelineShape{3}, k1F1B},
                                        {PipelineShape{3}, kZeroBubble},
                                        {PipelineShape{3, 2}, kInterleaved}}) {
    const std::vector<RankPasses> all = layers::train_in_pipeline(shape, 6, schedule);
    for (const RankPasses& passes : all) {
      const bool later = schedule == kZeroBubble && &passes != &all.front();
      std::map<std::pair<int, Pass::Kind>, int> begun, complete;  // by the rank's stage
      for (const Pass& pass : passes.front().passes) {
        if (pass.kind == Pass::Kind::exchange) continue;
        const std::pair at{pass.chunk, pass.kind};
        EXPECT_EQ(begun[at] > 0, pass.accumulate);
        EXPECT_EQ(complete[at], 0);
        EXPECT_EQ(pass.slot, begun[at]++);
        EXPECT_EQ(pass.weights_later, later && pass.kind == Pass::Kind::backward);
        complete[at] += pass.last;
      }
      EXPECT_EQ(begun.size(), later ? 3U : shape.virtual_stages > 1 ? 4U : 2U);
      for (const auto& [pass, number] : begun) {
        EXPECT_EQ(number, 6);
        EXPECT_EQ(complete[pass], 1);
      }
    }
  }
}

/// All ranks of a pipeline that do some passes, planned and proved together.
std::vector<std::string> faults(layers::PipelineShape shape, const std::vector<RankPasses>& passes,
                                int microbatches) {
  std::vector<parallel::RankTrace> traces;
  for (int rank = 0; rank < shape.ranks; ++rank) {
    forecast::TrainerOptions options =
        tiny_options(std::string(static_cast<std::size_t>(std::max(8, shape.stages())), '-'),
                     execution::Dtype::fp32);
    options.model.virtual_stages = shape.virtual_stages;
    layers::StepShape step = options.step;
    step.capacity = options.capacities.front();
    step.microbatches = microbatches;
    const auto ranks =
        parallel::planned_ranks(parallel::fit_grid(shape.ranks, 1, 1, 1, shape.ranks), rank);
    const layers::Model model(options.model, options.precision, 1, ranks);
    const execution::PersistentLayout layout =
        layers::lay_out_state(model.parameters(), model.states(), options.precision, options.state);
    execution::Program program("train", &layout);
    program.begin_section("prologue");
    const layers::StackedInputs inputs = add_inputs(program, step, model);
    const auto scale = program.input("loss_scale", execution::Dtype::fp32, {1});
    const auto loss = program.scratch("loss", execution::Dtype::fp32, {2});
    layers::Handles handles;
    layers::PassRecorder(program, model, handles, {step, inputs, scale, loss}).record(passes[rank]);
    program.finish();
    const execution::Plan plan = offload::make_plan(program, layout);
    const execution::PlannedProgram planned{&program, &plan};
    execution::require_proven({&planned, 1});
    traces.push_back(parallel::trace_communication(rank, {&planned, 1}));
  }
  return parallel::prove_jointly(traces);
}

TEST(passes, no_number_of_stages_and_microbatches_can_block) {
  for (const auto order : {k1F1B, kZeroBubble})
    for (const int stages : {2, 3, 4, 8})
      for (const int microbatches : {1, stages - 1, stages, 2 * stages + 1})
        EXPECT_EQ(faults({stages}, layers::train_in_pipeline({stages}, microbatches, order),
                         microbatches),
                  std::vector<std::string>())
            << stages << " stages, " << microbatches << " microbatches";
}

TEST(passes, no_number_of_interleaved_stages_can_block) {
  for (const layers::PipelineShape shape :
       {layers::PipelineShape{2, 2}, {2, 4}, {3, 2}, {3, 3}, {4, 2}, {8, 2}})
    for (const int groups : {1, 2, 3}) {
      const int microbatches = groups * shape.ranks;
      EXPECT_EQ(
          faults(shape, layers::train_in_pipeline(shape, microbatches, kInterleaved), microbatches),
          std::vector<std::string>())
          << shape.ranks << " ranks, " << shape.virtual_stages << " stages each, " << microbatches
          << " microbatches";
      // Forward alone takes any number.
      EXPECT_EQ(
          faults(shape, layers::evaluate_in_pipeline(shape, microbatches + 1), microbatches + 1),
          std::vector<std::string>());
    }
}

/// Index of the n-th exchange of a stage, counted from 0.
std::size_t exchange_at(const std::vector<Pass>& passes, int number) {
  for (std::size_t i = 0; i < passes.size(); ++i)
    if (passes[i].kind == Pass::Kind::exchange && number-- == 0) return i;
  throw std::out_of_range("no such exchange");
}

TEST(passes, microbatches_sent_in_another_order_are_a_fault_by_name) {
  std::vector<RankPasses> passes = layers::train_in_pipeline({2}, 3, k1F1B);
  std::vector<Pass>& first = passes[0].front().passes;
  ASSERT_EQ(text(passes[0]).substr(0, 24), "F0 (>s0) F1 (>s1) (<g0) ");
  std::swap(first[1], first[2]);  // the sizes are the same
  std::swap(first[2].transfers[0].slot, first[3].transfers[0].slot);
  ASSERT_EQ(text(passes[0]).substr(0, 24), "F0 F1 (>s1) (>s0) (<g0) ");
  const std::vector<std::string> found = faults({2}, passes, 3);
  ASSERT_FALSE(found.empty());
  EXPECT_NE(found.front().find("rank 0 sends 276 x fp32, stream of microbatch 1 to stage 1"),
            std::string::npos)
      << found.front();
  EXPECT_NE(found.front().find("rank 1 receives 276 x fp32, stream of microbatch 0 to stage 1"),
            std::string::npos)
      << found.front();
}

TEST(passes, stages_of_a_rank_served_in_another_order_are_a_fault_by_name) {
  std::vector<RankPasses> passes = layers::train_in_pipeline({2, 2}, 2, kInterleaved);
  std::vector<Pass>& first = passes[0].front().passes;
  ASSERT_EQ(text(passes[0]).substr(0, 38), "F0 (>s0) F1 (>s1 <s0') F0' (>s0' <s1')");
  first.insert(first.begin() + 6,
               {.kind = Pass::Kind::exchange, .transfers = {first[3].transfers[0]}});
  first[3].transfers.erase(first[3].transfers.begin());
  ASSERT_EQ(text(passes[0]).substr(0, 40), "F0 (>s0) F1 (<s0') F0' (>s0' <s1') (>s1)");
  const std::vector<std::string> found = faults({2, 2}, passes, 2);
  ASSERT_FALSE(found.empty());
  EXPECT_NE(found.front().find("stream of microbatch 0 to stage 3"), std::string::npos)
      << found.front();
  EXPECT_NE(found.front().find("stream of microbatch 1 to stage 1"), std::string::npos)
      << found.front();
}

/// Makes two exchanges of the n-th one of a stage: transfer `before` first, then the other.
void split(RankPasses& passes, int number, std::size_t before) {
  std::vector<Pass>& list = passes.front().passes;
  const std::size_t at = exchange_at(list, number);
  ASSERT_EQ(list[at].transfers.size(), 2U);
  Pass first{.kind = Pass::Kind::exchange, .transfers = {list[at].transfers[before]}};
  list[at].transfers.erase(list[at].transfers.begin() + static_cast<std::ptrdiff_t>(before));
  list.insert(list.begin() + static_cast<std::ptrdiff_t>(at), std::move(first));
}

TEST(passes, stages_that_wait_for_each_other_are_a_fault) {
  // Either may receive before it sends if the other does both at once; both may not.
  for (const bool one : {false, true})
    for (const bool other : {false, true}) {
      std::vector<RankPasses> passes = layers::train_in_pipeline({2}, 3, k1F1B);
      if (one) split(passes[0], 3, 1);
      if (other) split(passes[1], 3, 1);
      const std::vector<std::string> found = faults({2}, passes, 3);
      EXPECT_EQ(found.empty(), !(one && other)) << text(passes[0]) << ", " << text(passes[1]);
      if (one && other) {
        EXPECT_NE(found.front().find("mb1/stage.0/receive_gradient"), std::string::npos)
            << found.front();
      }
    }
}

/// A forward takes 1 s, backward and its weights as long each; messages take none.
forecast::Timeline timeline(layers::PipelineShape shape, int microbatches,
                            layers::PipelineSchedule order, double exchange_s = 0) {
  const std::vector<layers::PassTimes> times(static_cast<std::size_t>(shape.stages()), {1, 1, 1});
  return forecast::follow(layers::train_in_pipeline(shape, microbatches, order), times, exchange_s);
}

TEST(passes, bubbles_are_those_of_the_formula) {
  for (const int stages : {2, 3, 4, 8})
    for (const int microbatches : {stages, 2 * stages + 1, 4 * stages}) {
      const forecast::Timeline plain = timeline({stages}, microbatches, k1F1B);
      EXPECT_DOUBLE_EQ(plain.time_s, 3.0 * (microbatches + stages - 1));
      EXPECT_NEAR(plain.bubble(), (stages - 1.0) / (microbatches + stages - 1.0), 1e-12);
      // ZB-H1: a third of it is left.
      const forecast::Timeline filled = timeline({stages}, microbatches, kZeroBubble);
      EXPECT_DOUBLE_EQ(filled.time_s, 3.0 * microbatches + stages - 1)
          << stages << " stages, " << microbatches << " microbatches";
    }
}

TEST(passes, bubbles_of_interleaved_stages_are_a_part_of_it) {
  for (const layers::PipelineShape shape :
       {layers::PipelineShape{2, 2}, {2, 5}, {4, 2}, {4, 3}, {8, 2}})
    for (const int groups : {1, 2, 4}) {
      const int microbatches = groups * shape.ranks;
      const forecast::Timeline found = timeline(shape, microbatches, kInterleaved);
      const int passes = shape.virtual_stages * microbatches;
      EXPECT_DOUBLE_EQ(found.time_s, 3.0 * (passes + shape.ranks - 1))
          << shape.ranks << " ranks, " << shape.virtual_stages << " stages each, " << microbatches
          << " microbatches";
      EXPECT_NEAR(found.bubble(), (shape.ranks - 1.0) / (passes + shape.ranks - 1.0), 1e-12);
    }
}

TEST(passes, messages_of_uneven_stages_go_in_the_order_in_which_they_are_made) {
  // The head makes the last forward longer; cuts are such that all of it is as long.
  std::vector<layers::PassTimes> times(4, {1, 1, 1});
  times.back() = {2, 0.6, 0.4};
  for (const auto& [shape, schedule] : {std::pair{layers::PipelineShape{4}, k1F1B},
                                        {layers::PipelineShape{4}, kZeroBubble},
                                        {layers::PipelineShape{2, 2}, kInterleaved}}) {
    const auto passes = layers::train_in_pipeline(shape, 16, schedule, times);
    EXPECT_EQ(faults(shape, passes, 16), std::vector<std::string>());
    const auto as_if_even = layers::train_in_pipeline(shape, 16, schedule);
    EXPECT_LE(forecast::follow(passes, times, 0).time_s,
              forecast::follow(as_if_even, times, 0).time_s);
    if (schedule == kZeroBubble) {
      EXPECT_LT(forecast::follow(passes, times, 0).time_s,
                0.95 * forecast::follow(as_if_even, times, 0).time_s);
    }
  }
}

TEST(passes, messages_take_time_on_the_way_to_the_last_stage_and_back) {
  EXPECT_DOUBLE_EQ(timeline({4}, 1, k1F1B, 0.25).time_s, 4 * 3 + 6 * 0.25);
  EXPECT_GT(timeline({4}, 8, k1F1B, 0.25).time_s, timeline({4}, 8, k1F1B).time_s);
}

}  // namespace
}  // namespace stowage::ctest
