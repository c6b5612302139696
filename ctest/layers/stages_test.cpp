// Stages of a pipeline as they are planned, without their peers: where a model is cut, what is in
// flight, and what each stage keeps.
#include "layers/model/stages.hpp"

#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "execution/error.hpp"
#include "forecast/pipeline/balance.hpp"
#include "forecast/pipeline/planned_pipeline.hpp"
#include "offload/saved_tensors.hpp"
#include "tiny_model.hpp"

namespace stowage::ctest {
namespace {

using execution::Decision;

std::vector<int> ends(const std::string& pattern, int stages) {
  std::vector<int> all;
  for (const layers::Stage& stage : layers::divide(pattern, stages)) all.push_back(stage.end);
  return all;
}

TEST(stages, cuts_divide_a_pattern_and_so_do_equal_shares) {
  EXPECT_EQ(ends("M-|*E|M", 3), (std::vector{2, 4, 5}));
  EXPECT_EQ(ends("M-*EM", 2), (std::vector{3, 5}));
  EXPECT_EQ(ends("M-*EM-EM", 3), (std::vector{3, 6, 8}));
  EXPECT_EQ(ends("M-|*E|M", 1), (std::vector{5}));
  EXPECT_THROW(layers::divide("M-|*E", 3), execution::Error);
  EXPECT_THROW(layers::divide("M-", 3), execution::Error);
}

TEST(stages, stages_join_and_only_the_ends_have_embedding_and_head) {
  const std::vector<layers::Stage> all = layers::divide("M|-*E|M", 3);
  ASSERT_EQ(all.size(), 3U);
  for (std::size_t s = 0; s < all.size(); ++s) {
    EXPECT_EQ(all[s].begin, s == 0 ? 0 : all[s - 1].end);
    EXPECT_EQ(all[s].embedding, s == 0);
    EXPECT_EQ(all[s].head, s == 2);
  }
}

/// Cuts for these times of embedding, layers and head.
std::string cuts(const std::string& pattern, layers::PipelineShape shape, double embedding,
                 const std::vector<double>& layers, double head) {
  forecast::PartTimes times{{.forward_s = embedding}, {}, {.forward_s = head}};
  for (const double layer_s : layers)
    times.layers.push_back({layer_s / 4, layer_s / 2, layer_s / 4});
  return forecast::balanced_cuts(pattern, shape, times);
}

TEST(stages, schedules_have_the_names_of_decks) {
  using layers::PipelineSchedule;
  EXPECT_EQ(name(PipelineSchedule::one_forward_one_backward), "1f1b");
  EXPECT_EQ(name(PipelineSchedule::interleaved), "interleaved");
  EXPECT_EQ(name(PipelineSchedule::zero_bubble), "zero_bubble");
  EXPECT_EQ(name(PipelineSchedule::automatic), "auto");
}

TEST(stages, cuts_leave_the_slowest_stage_the_least_time) {
  // The head takes as long as four layers, the embedding as long as one.
  EXPECT_EQ(cuts("--------", {2}, 1, std::vector<double>(8, 1.0), 4), "-----|---");
  EXPECT_EQ(cuts("M-M-", {2}, 0, {4, 1, 1, 1}, 0), "M|-M-");
  EXPECT_EQ(cuts("----", {4}, 0, {9, 1, 1, 1}, 0), "-|-|-|-");
  // The first layer decides; the rest is even all the same.
  EXPECT_EQ(cuts("-------", {3}, 0, {9, 1, 1, 1, 1, 1, 1}, 0), "-|---|---");
  EXPECT_THROW(cuts("--", {3}, 0, {1, 1}, 0), execution::Error);
}

/// Eight layers that take as long each, with a budget of bytes for each of two ranks under 1F1B.
class TightCuts {
 public:
  explicit TightCuts(double budget_bytes, int microbatches = 4)
      : times_{{}, std::vector<layers::PassTimes>(8, {.forward_s = 1}), {}} {
    room_.budget_bytes = budget_bytes;
    room_.parts.layers.resize(8);
    room_.in_flight = forecast::in_flight(
        {2}, layers::train_in_pipeline({2}, microbatches,
                                       layers::PipelineSchedule::one_forward_one_backward));
  }

  forecast::DeviceRoom& room() { return room_; }
  forecast::PartBytes& layer(std::size_t i) { return room_.parts.layers[i]; }
  void each(forecast::PartBytes bytes) { room_.parts.layers.assign(8, bytes); }
  std::string find() const { return forecast::balanced_cuts("--------", {2}, times_, room_); }

 private:
  forecast::PartTimes times_;
  forecast::DeviceRoom room_;
};

TEST(stages, cuts_keep_what_must_stay_within_a_budget) {
  TightCuts cuts(12);
  cuts.each({.state = 1, .fixed = 1});
  // The first has two microbatches in flight: three bytes a layer, of which the last needs two.
  EXPECT_EQ(cuts.find(), "----|----");
  cuts.room().budget_bytes = 10;
  EXPECT_EQ(cuts.find(), "---|-----");
  // With less, no cut fits: those with the fewest bytes above the budget come first.
  cuts.room().budget_bytes = 1;
  EXPECT_EQ(cuts.find(), "-|-------");
  TightCuts one(10, 1);
  one.each({.state = 1, .fixed = 1});
  EXPECT_EQ(one.find(), "----|----");
  // What a pass works with counts once for each stage.
  TightCuts working(10);
  working.each({.state = 2});
  EXPECT_EQ(working.find(), "----|----");
  working.layer(7).working = 3;
  EXPECT_EQ(working.find(), "-----|---");
}

TEST(stages, cuts_weigh_time_against_copies_that_a_budget_asks_for) {
  TightCuts cuts(8);
  cuts.each({.movable = 2});  // four layers of the first keep 16 bytes
  EXPECT_EQ(cuts.find(), "----|----");
  cuts.room().copy_s_per_byte = 1;  // hidden: four bytes of a microbatch leave
  EXPECT_EQ(cuts.find(), "----|----");
  cuts.room().copy_s_per_byte = 2;
  EXPECT_EQ(cuts.find(), "---|-----");
}

TEST(stages, ranks_of_several_stages_count_what_is_in_flight_of_each) {
  const forecast::InFlight all = forecast::in_flight(
      {2, 2}, layers::train_in_pipeline({2, 2}, 4, layers::PipelineSchedule::interleaved));
  ASSERT_EQ(all.size(), 2U);
  const auto most = [](const std::set<std::vector<int>>& counts) {
    int sum = 0;
    for (const std::vector<int>& of_stages : counts)
      sum = std::max(sum, of_stages[0] + of_stages[1]);
    return sum;
  };
  EXPECT_EQ(most(all[0]), 5);  // (v - 1) p + 2 (p - 1 - s) + 1
  EXPECT_EQ(most(all[1]), 3);
  const auto bubbles = forecast::in_flight(
      {2}, layers::train_in_pipeline({2}, 4, layers::PipelineSchedule::zero_bubble));
  EXPECT_TRUE(bubbles[1].contains({2}));
}

TEST(stages, cuts_are_even_for_ranks_of_several_stages) {
  // The last stage has the head, so the other one of its rank has less.
  EXPECT_EQ(cuts("------------", {2, 2}, 0, std::vector<double>(12, 1.0), 4), "----|---|----|-");
  EXPECT_EQ(cuts("--------", {2, 2}, 0, std::vector<double>(8, 1.0), 0), "--|--|--|--");
}

TEST(stages, a_wide_vocabulary_takes_layers_from_the_last_stage) {
  forecast::TrainerOptions options = tiny_options("--------", execution::Dtype::fp32);
  options.sharing.ranks = parallel::planned_ranks(parallel::fit_grid(2, 1, 1, 1, 2), 0);
  options.planner.rates.op_s = 0;
  options.step.tokens = options.step.sequence = 8192;  // several rounds of tiles
  const auto layers_of_first = [&] {
    return forecast::TrainerPlan(options).model().stages().front().end;
  };
  const int narrow = layers_of_first();
  options.model.vocabulary = 1000;
  EXPECT_GT(layers_of_first(), narrow);
  options.model.vocabulary = 16;
  predict_further(options, true, "--");  // which stands with the head
  EXPECT_GT(layers_of_first(), narrow);
  options.model.pattern = "--|------";
  EXPECT_EQ(layers_of_first(), 2);
}

TEST(stages, a_budget_that_the_cut_by_time_exceeds_is_met_by_another) {
  forecast::TrainerOptions options = tiny_options("------------", execution::Dtype::fp32);
  options.model.width = 64;
  options.model.vocabulary = 512;
  options.model.mlp.ffn = 512;
  options.step.tokens = 256;
  options.step.microbatches = 4;
  options.evaluation_microbatches = 0;
  options.planner.rates.op_s = 0;
  offload::Policy& policy = options.planner.policy;
  policy.kind = offload::Policy::Kind::automatic;
  policy.min_tensor_bytes = std::size_t{1} << 30;  // nothing can leave
  const auto plan = [&](int stage) {
    options.sharing.ranks = parallel::planned_ranks(parallel::fit_grid(2, 1, 1, 1, 2), stage);
    return forecast::TrainerPlan(options);
  };
  const forecast::TrainerPlan free = plan(0);
  EXPECT_EQ(free.expected().pipeline->cut_for, "for even times");
  const std::size_t needed = free.layout().bytes() + free.transient_bytes();
  policy.device_budget_bytes = static_cast<std::int64_t>(0.9 * static_cast<double>(needed));
  const forecast::TrainerPlan first = plan(0), last = plan(1);
  EXPECT_EQ(first.expected().pipeline->pattern, last.expected().pipeline->pattern);
  EXPECT_NE(first.expected().pipeline->cut_for.find(free.expected().pipeline->pattern),
            std::string::npos);
  EXPECT_LT(first.model().stages().front().end, free.model().stages().front().end);
  EXPECT_EQ(first.expected().pipeline->over_bytes, 0);
  options.model.pattern = free.expected().pipeline->pattern;
  EXPECT_GT(forecast::decide_open_choices(options).pipeline->over_bytes, 0);
  EXPECT_THROW(plan(0), execution::Error);
}

TEST(stages, automatic_schedules_take_several_stages_where_they_pay) {
  forecast::TrainerOptions options = tiny_options("--------", execution::Dtype::fp32);
  options.sharing.ranks = parallel::planned_ranks(parallel::fit_grid(2, 1, 1, 1, 2), 0);
  options.sharing.schedule = layers::PipelineSchedule::automatic;
  options.model.virtual_stages = 4;
  options.planner.rates.op_s = 0;
  options.planner.rates.link = {0, 1e30};
  const auto made = [&](int microbatches) {
    options.step.microbatches = microbatches;
    const forecast::PipelinePlan pipeline = *forecast::decide_open_choices(options).pipeline;
    EXPECT_EQ(std::ranges::count(pipeline.pattern, '|'), 2 * pipeline.virtual_stages - 1);
    EXPECT_EQ(pipeline.schedule == layers::PipelineSchedule::interleaved,
              pipeline.virtual_stages == 4);
    return pipeline.virtual_stages;
  };
  EXPECT_EQ(made(3), 1);  // no full groups
  EXPECT_EQ(made(2), 4);
  options.planner.rates.link.latency_s = 1;  // four times as many messages
  EXPECT_EQ(made(2), 1);
  options.planner.rates.link.latency_s = 0;
  options.model.pattern = "----|----";
  EXPECT_EQ(made(2), 1);
  options.model.pattern = "-|-|-|-|-|-|-|-";
  EXPECT_EQ(made(2), 4);
  options.model.pattern = "-|---|----";
  EXPECT_THROW(forecast::decide_open_choices(options), execution::Error);
  options.model.pattern = "-------";
  EXPECT_EQ(made(2), 1);  // too few layers
}

TEST(stages, a_rank_says_which_layers_it_has) {
  const std::vector<layers::Stage> all = layers::divide("M-|*E|M|--", 4);
  EXPECT_EQ(layers::layers_text({all[0], all[2]}), "layers 0 to 1 and 4 to 4");
}

/// A stage of four equal layers, planned: all that is saved may leave.
class PlannedStage {
 public:
  PlannedStage(int stage, int microbatches, bool offload, std::int64_t keep_bytes = 0)
      : plan_(options(stage, microbatches, offload, keep_bytes)) {
    plan_.require_proven();
  }

  std::size_t transient_bytes() const { return plan_.transient_bytes(); }
  std::size_t kept_bytes() const {
    const auto& [recorded, choice, plan] = *plan_.training().front();
    std::size_t bytes = 0;
    for (const offload::SavedTensor& saved : offload::find_saved_tensors(recorded.program))
      if (plan.decisions[saved.tensor.id] == Decision::keep)
        bytes += recorded.program.info(saved.tensor).bytes();
    return bytes;
  }

 private:
  static forecast::TrainerOptions options(int stage, int microbatches, bool offload,
                                          std::int64_t keep_bytes) {
    forecast::TrainerOptions options = tiny_options("M|M|M|M", execution::Dtype::bf16);
    options.sharing.ranks = parallel::planned_ranks(parallel::fit_grid(4, 1, 1, 1, 4), stage);
    options.step.microbatches = microbatches;
    options.evaluation_microbatches = 0;
    offload::Policy& policy = options.planner.policy;
    policy.kind = offload::Policy::Kind::manual;
    policy.min_tensor_bytes = 0;
    policy.keep_exposed = false;
    policy.keep_bytes = keep_bytes;
    if (offload)
      for (const char* module :
           {"mamba_norm", "mamba_in_proj", "mamba_conv", "mamba_ssm", "mamba_out_proj"})
        policy.offload.push_back({module, {module}});
    return options;
  }

  forecast::TrainerPlan plan_;
};

/// Names of the ops of a training step that are a layer's last, or communicate, from backward on.
std::vector<std::string> ends_and_exchanges(const forecast::TrainerPlan& run) {
  std::vector<std::string> names;
  const execution::Program& program = *run.programs().front().program;
  for (const execution::Op& op : program.ops())
    if (op.communication || op.name.ends_with("norm_backward"))
      if (!names.empty() || op.name.ends_with("norm_backward")) names.push_back(op.name);
  return names;
}

TEST(stages, sums_of_gradients_are_behind_the_exchange_that_the_next_layer_waits_for) {
  forecast::TrainerOptions options = tiny_options("EME-", execution::Dtype::fp32);
  options.model.moe.experts = 4;
  options.state.bucket_elements = 1;  // each gradient by itself
  options.sharing.ranks = parallel::planned_ranks(parallel::fit_grid(2, 1, 1, 2), 0);
  const forecast::TrainerPlan run(options);
  const std::vector<std::string> names = ends_and_exchanges(run);
  const auto sums = std::ranges::count_if(run.layout().buckets(), [&](const auto& bucket) {
    return !bucket.tensors.empty() &&
           run.layout().whole(bucket.tensors.front()).lifetime == execution::Lifetime::gradient &&
           options.sharing.holders(bucket.group).size() > 1;
  });
  const auto behind = [&](const std::string& what) {
    const auto at = std::ranges::find_if(
        names, [&](const auto& name) { return name.find(what) != std::string::npos; });
    return at == names.end() || at + 1 == names.end() ? "" : *(at + 1);
  };
  const auto is_sum = [](const std::string& name) {
    return name.starts_with("all_reduce/gradient");
  };
  EXPECT_EQ(std::ranges::count_if(names, is_sum), sums) << "each once";
  // Experts come next: their exchange first, then what was summed of the layer before.
  EXPECT_EQ(behind("layers.3.mlp/norm_backward").find("mb0/layers.2.moe/"), 0U)
      << fmt::format("{}", fmt::join(names, "\n"));
  EXPECT_TRUE(is_sum(behind(behind("layers.3.mlp/norm_backward"))));
  // Nothing of a Mamba layer is exchanged, nor before the embedding: the sums begin at once.
  EXPECT_TRUE(is_sum(behind("layers.2.moe/norm_backward")));
  EXPECT_TRUE(is_sum(behind("layers.0.moe/norm_backward")));
}

TEST(stages, what_is_in_flight_needs_memory_and_nothing_more) {
  // Stage 1 has three microbatches in flight, however many there are.
  const std::size_t one = PlannedStage(1, 1, false).transient_bytes();
  const std::size_t two = PlannedStage(1, 2, false).transient_bytes();
  const std::size_t three = PlannedStage(1, 3, false).transient_bytes();
  EXPECT_GT(two, one);
  EXPECT_NEAR(static_cast<double>(three - two), static_cast<double>(two - one),
              0.2 * static_cast<double>(two - one));
  // Only what all microbatches are given at once grows: the row of each in the inputs.
  EXPECT_NEAR(static_cast<double>(PlannedStage(1, 12, false).transient_bytes()),
              static_cast<double>(three), 0.1 * static_cast<double>(three));
}

/// Bytes that a plan holds at most of what its passes hand to later ones; what ranks exchange
/// counts from the first pass that uses it.
double planned_held(const forecast::TrainerPlan& run) {
  using execution::Step;
  const auto& [recorded, choice, plan] = *run.training().front();
  const execution::Program& program = recorded.program;
  std::vector<int> begin(plan.places.size(), -1), end = begin, passes = begin;
  int pass = -1;
  for (auto i = static_cast<int>(plan.steps.size()); i-- > 0;) {  // a rerun is of the pass behind
    const Step& step = plan.steps[i];
    if (step.what != Step::What::run && step.what != Step::What::rerun) continue;
    const int scope = layers::enclosing(program, program.ops()[step.op], "microbatch");
    if (step.what == Step::What::run) pass = scope;
    if (scope < 0) continue;
    for (const int place : step.places) {
      const auto lifetime = program.info(plan.places[place].tensor).lifetime;
      if (lifetime != execution::Lifetime::saved && lifetime != execution::Lifetime::scratch)
        continue;
      if (end[place] < 0) end[place] = i, passes[place] = pass;
      if (passes[place] != pass) passes[place] = -2;  // more than one
      begin[place] = i;
    }
  }
  std::vector<double> change(plan.steps.size() + 1);
  for (std::size_t p = 0; p < plan.places.size(); ++p) {
    if (passes[p] != -2) continue;
    change[begin[p]] += static_cast<double>(plan.places[p].bytes);
    change[end[p] + 1] -= static_cast<double>(plan.places[p].bytes);
  }
  double now = 0, most = 0;
  for (const double bytes : change) most = std::max(most, now += bytes);
  return most;
}

TEST(stages, plans_hold_no_more_for_weights_that_wait_than_they_state) {
  constexpr double kIndices = 1.01;  // indices of documents and tokens are not counted
  for (const double bound : {0.0, 1.0, 30e3, 1e9}) {
    double fullest = 0;
    for (const int stage : {0, 1, 2, 3}) {
      SCOPED_TRACE(testing::Message() << "bound " << bound << ", stage " << stage);
      forecast::TrainerOptions options = tiny_options("M-|*E|M-|*-", execution::Dtype::bf16);
      options.sharing.ranks = parallel::planned_ranks(parallel::fit_grid(4, 1, 1, 1, 4), stage);
      options.step.microbatches = 6;
      options.evaluation_microbatches = 0;
      const double plain = planned_held(forecast::TrainerPlan(options));
      fullest = std::max(fullest, plain);
      options.sharing.schedule = layers::PipelineSchedule::zero_bubble;
      options.sharing.zero_bubble_bytes = bound;
      const forecast::TrainerPlan run(options);
      run.require_proven();
      const forecast::DelayedWeights& delayed = *run.expected().pipeline->delayed;
      const double held = planned_held(run);
      EXPECT_LE(held, kIndices * delayed.held_bytes[stage]);
      EXPECT_GE(held, 0.8 * delayed.held_bytes[stage]);
      EXPECT_LE(held, std::max(plain, kIndices * delayed.bound_bytes));
      if (bound == 1 || stage == 0) {
        EXPECT_EQ(held, plain);
      }
      if (bound == 0 && stage == 3) {
        EXPECT_NEAR(delayed.bound_bytes, fullest, 0.01 * fullest);
      }
    }
  }
}

TEST(stages, passes_take_as_long_as_their_ranks_plan) {
  forecast::TrainerOptions options = tiny_options("M-M-M-M-", execution::Dtype::fp32);
  options.step.microbatches = 6;
  options.evaluation_microbatches = 0;
  options.planner.rates.op_s = 0;
  options.planner.rates.link.latency_s = 0;  // passes of this model are far shorter
  options.planner.policy.min_tensor_bytes = 0;
  const auto made = [&](int rank) {
    options.sharing.ranks = parallel::planned_ranks(parallel::fit_grid(2, 1, 1, 1, 2), rank);
    return forecast::TrainerPlan(options);
  };
  for (const auto schedule :
       {layers::PipelineSchedule::one_forward_one_backward, layers::PipelineSchedule::zero_bubble})
    for (const int rank : {0, 1}) {
      options.sharing.schedule = schedule;
      options.planner.policy.recompute.clear();
      const forecast::TrainerPlan plain = made(rank);
      options.planner.policy.recompute = {{"mlp_act", {"mlp_act"}}, {"ssm", {"mamba_ssm"}}};
      const forecast::TrainerPlan again = made(rank);
      const auto &first = *plain.training().front(), &second = *again.training().front();
      const layers::PassTimes was = plain.pass_times(first, plain.predict_alone(first)).front();
      const layers::PassTimes now = again.pass_times(second, again.predict_alone(second)).front();
      const layers::PassTimes predicted = plain.expected().pipeline->times[rank];
      EXPECT_NEAR(was.all_s(), predicted.all_s(), 0.1 * predicted.all_s());
      EXPECT_NEAR(now.forward_s, was.forward_s, 1e-9 * was.forward_s);
      EXPECT_GT(now.backward_s, 1.01 * was.backward_s);
      EXPECT_GT(again.timeline(second, again.predict_alone(second)).time_s,
                plain.timeline(first, plain.predict_alone(first)).time_s);
      // The other rank, of which nothing is known, is taken to be as much longer.
      const auto all = forecast::scale_to_measured(*again.expected().pipeline, rank, {now});
      const layers::PassTimes other = again.expected().pipeline->times[1 - rank];
      EXPECT_NEAR(all[1 - rank].backward_s / other.backward_s,
                  now.backward_s / again.expected().pipeline->times[rank].backward_s, 1e-9);
      EXPECT_EQ(all[rank].backward_s, now.backward_s);
      EXPECT_GT(again.step_s(second), second.plan.time_s);
    }
  // What a pass waits for copies is its own time, unlike what it waits for messages.
  options.planner.policy.recompute.clear();
  const forecast::TrainerPlan kept = made(0);
  options.planner.policy.kind = offload::Policy::Kind::manual;
  options.planner.policy.offload = {{"mlp_act", {"mlp_act"}}};
  options.planner.policy.keep_exposed = false;
  options.planner.rates.h2d_bytes_per_s = 1e6;
  const forecast::TrainerPlan copied = made(0);
  const auto backward_s = [](const forecast::TrainerPlan& run) {
    const auto& step = *run.training().front();
    return run.pass_times(step, run.predict_alone(step)).front().backward_s;
  };
  EXPECT_GT(backward_s(copied), 2 * backward_s(kept));
}

/// With links that take no time, with slow ones, and with such that most lies under compute.
TEST(stages, parts_take_exchanges_as_far_as_compute_waits) {
  forecast::TrainerOptions options = tiny_options("M-*E", execution::Dtype::fp32);
  options.model.vocabulary = 14;
  options.model.moe.experts = 6;
  options.step.tokens = options.step.sequence = 24;
  const parallel::Ranks ranks = parallel::planned_ranks(parallel::fit_grid(2, 2, 1, 1, 1), 0);
  offload::Rates& rates = options.planner.rates;
  const auto all_s = [&](const forecast::PartTimes& times) {
    double sum_s = 0;
    for (int part = -1; part <= 4; ++part) sum_s += times.of(part).all_s();
    return sum_s;
  };
  const auto predicted = [&](double bytes_per_s) {
    rates.link = {0, bytes_per_s};
    return forecast::predict_parts(options.model, options.precision, options.step, ranks, rates);
  };
  const forecast::PredictedParts silent = predicted(1e30);
  const double compute_s = all_s(silent.compute);
  EXPECT_NEAR(all_s(silent.times), compute_s, 1e-3 * compute_s);  // inputs are copied beside
  for (int part = -1; part <= 4; ++part)
    EXPECT_GT(predicted(1e6).times.of(part).all_s(), silent.compute.of(part).all_s()) << part;
  EXPECT_NEAR(all_s(predicted(1e6).compute), compute_s, 1e-9 * compute_s);
  // Own rows are multiplied while the others come: less is waited for than is exchanged.
  rates.op_s = 0;
  rates.flops_per_s = 1e9;
  const double alone_s = all_s(predicted(1e30).compute);
  const double slow_s = all_s(predicted(1e4).times) - alone_s;
  const double quick_s = all_s(predicted(1e9).times) - alone_s;
  EXPECT_GT(quick_s, 0);
  EXPECT_LT(quick_s, 0.8 * 1e-5 * slow_s);
}

/// Whatever is known of links, by group, by kind and beside compute.
TEST(stages, messages_take_no_time_in_what_a_rank_does_alone) {
  const std::string group(parallel::name(parallel::Group::pipeline));
  offload::Rates rates;
  rates.links = {{group, {1, 1}}, {group + " exchange", {2, 1}}, {"any", {3, 1}}};
  rates.links_with_compute = {{group + " exchange", {4, 1}}, {"any exchange", {5, 1}}};
  EXPECT_EQ(rates.with_compute_s(group, "exchange", 0), 4);
  const offload::Rates alone = forecast::alone(rates);
  EXPECT_EQ(alone.link_of(group, "exchange").time_s(1e9), 0);
  EXPECT_EQ(alone.with_compute_s(group, "exchange", 1e9), 0);
  EXPECT_EQ(alone.with_compute_s("data", "exchange", 0), 5);
}

TEST(stages, offload_pays_most_where_most_is_in_flight) {
  const PlannedStage first(0, 4, true), last(3, 4, true);
  const PlannedStage first_kept(0, 4, false), last_kept(3, 4, false);
  EXPECT_EQ(first.kept_bytes(), 0U);
  EXPECT_GT(first_kept.transient_bytes() - first.transient_bytes(),
            last_kept.transient_bytes() - last.transient_bytes());
}

TEST(stages, a_rank_keeps_its_share_of_delta_bytes_and_never_more) {
  constexpr std::int64_t kDelta = 3000;
  std::size_t last = 0;
  for (const int stage : {0, 1, 2, 3}) {
    const PlannedStage planned(stage, 4, true, stage * kDelta);
    EXPECT_LE(planned.kept_bytes(), static_cast<std::size_t>(stage * kDelta));
    EXPECT_GE(planned.kept_bytes(), last);
    last = planned.kept_bytes();
    EXPECT_EQ(last > 0, stage > 0);
  }
}

}  // namespace
}  // namespace stowage::ctest
