#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "offload/summary.hpp"
#include "tiny_model.hpp"

namespace stowage::ctest {
namespace {

using execution::Decision;
using execution::Dtype;
using execution::Step;
using offload::Policy;

using Names = std::vector<std::string>;

const Names kSome = {"mlp_act", "moe_act", "mamba_ssm"};

Names all_that_can_be_rerun() {
  Names names;
  for (const std::string& name : module_names())
    if (!name.ends_with("_norm")) names.push_back(name);
  return names;
}

std::vector<offload::ModuleName> listed(const Names& names) {
  std::vector<offload::ModuleName> result;
  for (const std::string& name : names) result.push_back({name, {name}});
  return result;
}

/// All four letters, one of them twice, so that a chain of layers is there.
forecast::TrainerOptions options_of(int microbatches, const Names& offload,
                                    const Names& recompute) {
  forecast::TrainerOptions options = tiny_options(every_kind() + "M", Dtype::bf16);
  options.step.microbatches = microbatches;
  options.evaluation_microbatches = 0;
  Policy& policy = options.planner.policy;
  policy.kind = Policy::Kind::manual;
  policy.offload = listed(offload);
  policy.recompute = listed(recompute);
  policy.min_tensor_bytes = 0;
  policy.keep_exposed = false;
  return options;
}

/// What a run of two steps leaves: losses, and all bytes that outlive a step.
struct Outcome {
  std::vector<double> losses;
  std::vector<std::byte> state;

  friend bool operator==(const Outcome&, const Outcome&) = default;
};

constexpr int kSteps = 2;

Outcome outcome(TinyRun& run) {
  Outcome result;
  for (int i = 0; i < kSteps; ++i) {
    run.train(i, 1e-2);
    result.losses.push_back(run.loss()[0]);
  }
  result.state = run.state();
  return result;
}

const execution::Plan& plan_of(TinyRun& run) {
  return run.trainer().plan().training().front()->plan;
}

/// Copies and reruns of one step, counted from names, without the planner's help.
struct Expected {
  long copies = 0;
  std::size_t bytes = 0;
  std::set<std::string> again;  ///< tensors to be computed again
};

Expected expected(const execution::Program& program, const Names& offload, const Names& recompute) {
  const auto has = [](const Names& names, const std::string& name) {
    return std::find(names.begin(), names.end(), name) != names.end();
  };
  Expected result;
  std::set<std::string> seen;  // a tensor is read by many, and copied once
  for (const execution::Section& section : program.sections())
    for (int i = section.begin; i < section.end; ++i)
      for (const execution::Use& use : program.ops()[i].uses) {
        const execution::TensorInfo& info = program.info(use.tensor);
        if (info.module.empty() || !seen.insert(info.name).second) continue;
        if (has(recompute, info.module))
          result.again.insert(info.name);
        else if (has(offload, info.module))
          for (const execution::BufferInfo& buffer : info.buffers) {
            result.copies += section.repeat;
            result.bytes += buffer.bytes() * static_cast<std::size_t>(section.repeat);
          }
      }
  return result;
}

/// Steps of a kind in one execution of a plan.
long count(const execution::Plan& plan, Step::What what) {
  long count = 0;
  execution::for_each_issued(plan, 1 << 20,
                             [&](int step, int, int) { count += plan.steps[step].what == what; });
  return count;
}

void expect_counts(TinyRun& run, const Names& offload, const Names& recompute) {
  const auto [recorded, executor] = run.trainer().training(1);
  const execution::Plan& plan = executor.plan();
  const Expected wanted = expected(recorded.program, offload, recompute);
  EXPECT_EQ(count(plan, Step::What::copy_out), wanted.copies);
  EXPECT_EQ(count(plan, Step::What::copy_in), wanted.copies);
  const execution::ExecutorCounters& counters = executor.counters();
  EXPECT_EQ(counters.copies_out, kSteps * wanted.copies);
  EXPECT_EQ(counters.copies_in, kSteps * wanted.copies);
  EXPECT_EQ(counters.bytes_out, kSteps * wanted.bytes);
  EXPECT_EQ(counters.bytes_in, kSteps * wanted.bytes);
  EXPECT_EQ(counters.reruns, kSteps * count(plan, Step::What::rerun));
  EXPECT_EQ(count(plan, Step::What::rerun) > 0, !wanted.again.empty());
  std::set<std::pair<int, int>> moved;
  for (const Step& step : plan.steps)
    if (step.what == Step::What::copy_out) {
      const execution::Place& from = plan.places[step.places[0]];
      EXPECT_TRUE(moved.emplace(from.tensor.id, from.buffer).second) << "copied twice";
    }
  for (std::size_t id = 0; id < plan.decisions.size(); ++id)
    EXPECT_EQ(plan.decisions[id] == Decision::recompute,
              wanted.again.contains(recorded.program.tensors()[id].name));
}

TEST(offload, every_name_alone_and_all_give_the_bits_of_the_plain_run) {
  for (const int microbatches : {1, 3}) {
    TinyRun plain(options_of(microbatches, {}, {}));
    const Outcome bits = outcome(plain);
    for (const Names& recompute : {Names{}, kSome, all_that_can_be_rerun()}) {
      std::vector<Names> lists{{}, module_names()};
      for (const std::string& name : module_names()) lists.push_back({name});
      for (const Names& list : lists) {
        TinyRun run(options_of(microbatches, list, recompute));
        EXPECT_TRUE(outcome(run) == bits)
            << microbatches << " microbatches, " << list.size() << " names offloaded"
            << ", recomputed " << recompute.size();
        expect_counts(run, list, recompute);
      }
    }
  }
}

TEST(offload, what_depths_of_further_tokens_save_leaves_by_its_name) {
  const auto options = [](const Names& offload) {
    forecast::TrainerOptions made = options_of(1, offload, {});
    predict_further(made, false);
    return made;
  };
  TinyRun plain(options({})), moved(options({"mtp_norm"}));
  EXPECT_TRUE(outcome(moved) == outcome(plain));
  // Of each of two depths the embedding, the last sum, three rstd; of the first its normed rows.
  EXPECT_EQ(moved.trainer().training(1).executor.counters().copies_out, kSteps * (2 * 5 + 1));
}

using Form = layers::ModelConfig::Mamba::Form;

forecast::TrainerOptions with_mixer(Form form, forecast::TrainerOptions options) {
  options.model.mamba.form = form;
  return options;
}

TEST(offload, the_fused_forward_gives_the_bits_of_the_plain_run) {
  TinyRun plain(options_of(3, {}, {}));
  const Outcome bits = outcome(plain);
  for (const Names& recompute : {Names{}, kSome, all_that_can_be_rerun()}) {
    TinyRun run(with_mixer(Form::fused_forward, options_of(3, module_names(), recompute)));
    EXPECT_TRUE(outcome(run) == bits) << "recomputed " << recompute.size();
    expect_counts(run, module_names(), recompute);
  }
}

TEST(offload, the_fused_mixer_gives_the_bits_of_the_plain_run_and_saves_less) {
  for (const int microbatches : {1, 3}) {
    TinyRun plain(options_of(microbatches, {}, {}));
    const Outcome bits = outcome(plain);
    for (const Names& recompute : {Names{}, kSome, all_that_can_be_rerun()}) {
      for (const Names& list : {Names{}, Names{"mamba_conv"}, Names{"mamba_ssm"}, module_names()}) {
        TinyRun run(with_mixer(Form::fused, options_of(microbatches, list, recompute)));
        EXPECT_TRUE(outcome(run) == bits)
            << microbatches << " microbatches, " << list.size() << " names offloaded"
            << ", recomputed " << recompute.size();
        expect_counts(run, list, recompute);
        for (const execution::TensorInfo& info :
             run.trainer().plan().training().front()->recorded.program.tensors())
          EXPECT_NE(info.module, "mamba_conv");
      }
    }
  }
}

TEST(offload, everything_that_moves_makes_the_step_smaller) {
  TinyRun plain(options_of(1, {}, {}));
  TinyRun moved(options_of(1, module_names(), {}));
  TinyRun rerun(options_of(1, {}, all_that_can_be_rerun()));
  TinyRun both(options_of(1, module_names(), all_that_can_be_rerun()));
  EXPECT_LT(plan_of(moved).bytes[1], plan_of(plain).bytes[1]);
  EXPECT_LT(plan_of(rerun).bytes[1], plan_of(plain).bytes[1]);
  EXPECT_LT(plan_of(both).bytes[1], plan_of(rerun).bytes[1]);
  TinyRun less(with_mixer(Form::fused, options_of(1, {}, {})));
  EXPECT_LT(plan_of(less).bytes[1], plan_of(plain).bytes[1]);
}

TEST(offload, random_delays_change_no_bit) {
  TinyRun plain(options_of(3, {}, {}));
  const Outcome bits = outcome(plain);
  for (const std::uint64_t seed : {3U, 4U}) {
    TinyRun run(options_of(3, module_names(), kSome), {.delay_seed = seed, .max_delay_s = 50e-6});
    EXPECT_TRUE(outcome(run) == bits);
  }
}

TEST(offload, audit_finds_nothing_undeclared) {
  TinyRun plain(options_of(1, {}, {}));
  forecast::TrainerOptions options = options_of(1, module_names(), kSome);
  options.executor.audit = true;
  options.planner.alignment = 4096;
  TinyRun run(options);
  EXPECT_TRUE(outcome(run) == outcome(plain));
}

TEST(offload, audit_finds_nothing_undeclared_where_gradients_come_later) {
  TinyRun plain(options_of(1, {}, {}));
  forecast::TrainerOptions options = options_of(1, {}, {});
  options.executor.audit = true;
  options.planner.alignment = 4096;
  TinyRun roomy(options);
  const execution::Plan& kept = plan_of(roomy);
  Policy& policy = options.planner.policy;
  policy.kind = Policy::Kind::automatic;
  policy.device_budget_bytes = static_cast<std::int64_t>(kept.bytes[0] + kept.bytes[1] * 3 / 4);
  TinyRun run(options);
  const execution::Program& program = run.trainer().plan().training().front()->recorded.program;
  const execution::Plan& plan = plan_of(run);
  EXPECT_GT(offload::bytes_in_gradient_memory(program, plan), 0U);
  EXPECT_TRUE(outcome(run) == outcome(plain));
}

/// Names by number of buffers that leave, of a run with a fraction.
std::map<std::string, int> leaving(TinyRun& run) {
  std::map<std::string, int> result;
  const auto& training = *run.trainer().plan().training().front();
  for (std::size_t id = 0; id < training.plan.decisions.size(); ++id)
    if (training.plan.decisions[id] == Decision::offload)
      ++result[training.recorded.program.tensors()[id].module];
  return result;
}

TEST(offload, a_fraction_takes_whole_tensors_from_the_earliest_on) {
  TinyRun plain(options_of(1, {}, {}));
  forecast::TrainerOptions options = options_of(1, module_names(), {});
  options.planner.policy.fraction = 0.5;
  TinyRun run(options);
  EXPECT_TRUE(outcome(run) == outcome(plain));
  const std::map<std::string, int> left = leaving(run);
  EXPECT_EQ(left.at("mamba_conv"), 1);   // one of two layers
  EXPECT_EQ(left.count("mlp_act"), 0U);  // one layer: half of it is not a whole tensor
  const auto& training = *run.trainer().plan().training().front();
  const auto decision = [&](const std::string& name) {
    return training.plan.decisions[training.recorded.program.find(name).id];
  };
  EXPECT_EQ(decision("mb0/layers.0.mamba/in_proj_out"), Decision::offload);
  EXPECT_EQ(decision(fmt::format("mb0/layers.{}.mamba/in_proj_out", every_kind().size())),
            Decision::keep);
}

TEST(offload, caps_change_no_bit) {
  TinyRun plain(options_of(3, {}, {}));
  const Outcome bits = outcome(plain);
  for (const execution::CopyCaps caps :
       {execution::CopyCaps{0, -1, -1}, execution::CopyCaps{1, -1, -1},
        execution::CopyCaps{4, 2048, 4096}, execution::CopyCaps{-1, 0, 0}}) {
    forecast::TrainerOptions options = options_of(3, module_names(), kSome);
    options.planner.policy.caps = caps;
    TinyRun run(options);
    EXPECT_TRUE(outcome(run) == bits) << caps.max_inflight;
    expect_counts(run, module_names(), kSome);
  }
}

TEST(offload, a_tensor_is_whole_in_backward_though_some_buffers_stay) {
  TinyRun plain(options_of(1, {}, {}));
  forecast::TrainerOptions options = options_of(1, module_names(), {});
  options.planner.policy.min_tensor_bytes = 1000;  // rstd and lse are smaller
  TinyRun run(options);
  EXPECT_TRUE(outcome(run) == outcome(plain));
  const execution::Plan& plan = plan_of(run);
  EXPECT_GT(count(plan, Step::What::copy_out), 0);
  for (const Step& step : plan.steps)
    if (step.what == Step::What::copy_out) {
      EXPECT_GE(plan.places[step.places[0]].bytes, 1000U);
    }
}

TEST(offload, evaluation_moves_nothing) {
  forecast::TrainerOptions options = options_of(1, module_names(), all_that_can_be_rerun());
  options.evaluation_microbatches = 1;
  TinyRun run(options);
  const execution::Plan& plan = run.trainer().plan().evaluation().front()->plan;
  EXPECT_EQ(count(plan, Step::What::copy_out) + count(plan, Step::What::rerun), 0);
}

// Programs of all capacities share their memory, and decide alike about each tensor, though a small
// one alone would have to move less.
TEST(offload, capacities_share_one_choice) {
  constexpr std::int64_t kLargest = 4000;
  forecast::TrainerOptions options = options_of(1, {}, {});
  options.capacities = {kLargest};
  const forecast::TrainerPlan kept(options);
  const execution::Plan& all = kept.training().front()->plan;
  Policy& policy = options.planner.policy;
  policy.kind = Policy::Kind::automatic;
  policy.reuse_gradient_memory = false;
  policy.device_budget_bytes = static_cast<std::int64_t>(all.bytes[0] + all.bytes[1] * 3 / 4);
  options.capacities = {4};
  const forecast::TrainerPlan alone(options);
  options.capacities = {4, 40, kLargest};
  const forecast::TrainerPlan plan(options);
  const auto& largest = *plan.training().back();
  const std::vector<Decision>& decided = largest.choice.decisions;
  EXPECT_NE(alone.training().front()->choice.decisions, decided);
  for (const auto& training : plan.training()) {
    EXPECT_EQ(training->choice.decisions, decided) << training->recorded.shape.capacity;
    EXPECT_LE(training->plan.bytes[1], largest.plan.bytes[1]);
    EXPECT_LE(training->plan.bytes[2], largest.plan.bytes[2]);
  }
  plan.require_proven();
}

}  // namespace
}  // namespace stowage::ctest
