#include "forecast/layouts/layout_search.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <utility>

#include "execution/error.hpp"
#include "execution/printable.hpp"
#include "forecast/plan/checkpoint_memory.hpp"
#include "forecast/plan/memory_fit.hpp"
#include "forecast/plan/memory_table.hpp"
#include "forecast/plan/parallel_section.hpp"
#include "forecast/plan/policies.hpp"
#include "forecast/rates/machine_section.hpp"
#include "inputs/data/run_section.hpp"
#include "layers/recording/config_section.hpp"
#include "layers/recording/kind.hpp"
#include "layers/state/sharing.hpp"

namespace stowage::forecast {
namespace {

using execution::Region;
using parallel::Axis;

/// Plans of a quick search, and microbatches of a pipeline's and of other plans: as many as show
/// what every further one adds.
constexpr int kQuickPlans = 4, kQuickRounds = 2, kQuickMicrobatches = 4;

/// Stages of a rank of a pipeline, as far as layers and microbatches allow them.
constexpr int kVirtualStages[] = {1, 2, 4};

/// Part of the memory that addresses may fill without a search for better ones; what cannot be
/// smaller is not searched for.
constexpr double kSafe = 0.98;

std::vector<int> divisors(std::int64_t number) {
  std::vector<int> all;
  for (std::int64_t i = 1; i <= number; ++i)
    if (number % i == 0) all.push_back(static_cast<int>(i));
  return all;
}

struct AxisKey {
  Axis axis;
  std::string_view key;
};
std::array<AxisKey, 5> axis_keys() {
  return {{{Axis::tensor, inputs::key(&ParallelConfig::tensor)},
           {Axis::context, inputs::key(&ParallelConfig::context)},
           {Axis::expert, inputs::key(&ParallelConfig::expert)},
           {Axis::pipeline, inputs::key(&ParallelConfig::pipeline)},
           {Axis::data, inputs::key(&ParallelConfig::data)}}};
}

/// The layout whose plans stand for those of this one.
Layout planned_layout(Layout layout, LayoutSearch::Effort effort) {
  if (effort == LayoutSearch::Effort::full) return layout;
  const int stages = layout.shape[Axis::pipeline];
  layout.microbatches =
      std::min(layout.microbatches, stages > 1 ? kQuickRounds * stages : kQuickMicrobatches);
  return layout;
}

}  // namespace

LayoutSearch::LayoutSearch(const inputs::Deck& deck, std::int64_t ranks, Effort effort)
    : deck_(deck),
      ranks_(ranks),
      effort_(effort),
      memory_(static_cast<double>(usable_memory(deck, "--ranks"))) {
  require_rates(deck, "--ranks");
  enumerate();
  if (candidates_.empty()) no_layout();
  std::ranges::sort(candidates_, {}, [](const Candidate& c) { return c.estimate.step_s(); });
}

bool LayoutSearch::plan(std::size_t wanted) {
  plan_some(wanted);
  if (std::ranges::none_of(candidates_, &Candidate::usable)) {
    std::ranges::stable_sort(candidates_, {},
                             [](const Candidate& c) { return c.estimate.persistent_bytes; });
    plan_some(wanted);
  }
  sort_by_step();
  if (!candidates_.front().usable()) return false;
  if (effort_ == Effort::full) improve(wanted);
  return true;
}

std::ptrdiff_t LayoutSearch::planned() const {
  return std::ranges::count_if(candidates_, &Candidate::planned);
}

/// Says on stderr what a search is at, once it has lasted some seconds.
void LayoutSearch::tell_progress(int number, const Layout& layout) const {
  constexpr std::chrono::seconds kPatience{2};
  if (std::chrono::steady_clock::now() - begin_ < kPatience) return;
  execution::print_remark(fmt::format("# planning {} of at most {}: {}, {} microbatches", number,
                                      kMostPlans, layout.shape.describe(), layout.microbatches));
}

void LayoutSearch::enumerate() {
  const auto train = inputs::read<inputs::TrainConfig>(deck_);
  const int most_experts = inputs::read(deck_, &layers::ModelConfig::Moe::experts);
  const auto pattern = inputs::read(deck_, &layers::ModelConfig::pattern);
  const auto layers = std::ranges::count_if(pattern, [](char c) { return c != '|'; });
  const auto cuts = std::ranges::count(pattern, '|');
  const bool experts = inputs::has_experts(inputs::read<layers::ModelConfig>(deck_).letters());
  const bool same_on_ranks = inputs::read(deck_, &inputs::RunConfig::same_on_ranks);
  const auto leaves = inputs::read(deck_, &inputs::RunConfig::same_bits_leaves);  // 0: any
  const bool tied = inputs::read(deck_, &layers::ModelConfig::tied_embeddings);
  const bool overlap =
      inputs::read(deck_, &ParallelConfig::overlap_microbatches);  // has no pipeline
  for (const int tensor : divisors(ranks_))
    for (const int context : divisors(ranks_ / tensor))
      for (const int expert : divisors(ranks_ / tensor / context)) {
        if (expert > 1 && (!experts || expert > most_experts)) continue;
        const std::int64_t rest = ranks_ / tensor / context / expert;
        for (const int pipeline : divisors(rest)) {
          if (pipeline > layers || (pipeline > 1 && overlap)) continue;
          const auto data = static_cast<int>(rest / pipeline);
          const parallel::GridShape shape{{{tensor, context, expert, pipeline, data}}};
          if (!as_asked(shape) || (same_on_ranks && !layers::one_tree(shape, tied))) continue;
          const std::int64_t share = std::int64_t{expert} * data * train.micro_batch_size;
          const std::int64_t batch = train.global_batch_size;
          least_batch_ = std::min(least_batch_, share);
          if (batch % share != 0) continue;
          if (leaves % (std::int64_t{expert} * data) != 0) continue;
          const auto microbatches = static_cast<int>(batch / share);
          for (const int stages : kVirtualStages) {
            const bool possible = pipeline > 1 && std::int64_t{pipeline} * stages <= layers &&
                                  microbatches % pipeline == 0;
            if (stages > 1 && (!possible || cuts > 0)) continue;
            consider({.shape = shape,
                      .virtual_stages = stages,
                      .zero = group_size(shape, parallel::Group::dense_gradients) > 1,
                      .microbatches = microbatches});
          }
        }
      }
}

/// Axes that the command line gives are obeyed; what a file says of them is of its own runs.
bool LayoutSearch::as_asked(const parallel::GridShape& shape) const {
  return std::ranges::all_of(axis_keys(), [&](const auto& axis) {
    return !is_asked(axis.key) || shape[axis.axis] == deck_.get<std::int64_t>(axis.key);
  });
}

void LayoutSearch::plan_some(std::size_t wanted) {
  const int most = effort_ == Effort::full ? kMostPlans : kQuickPlans;
  int plans = 0;
  for (Candidate& candidate : candidates_) {
    if (candidate.planned || candidate.estimate.persistent_bytes > memory_) continue;
    if (plans++ == most || enough(wanted, candidate)) return;
    tell_progress(plans, candidate.layout);
    make_plans(candidate);
  }
}

void LayoutSearch::consider(const Layout& layout) {
  Candidate candidate{layout, estimator_.estimate(layout)};
  if (candidate.estimate.refused.empty())
    candidates_.push_back(std::move(candidate));
  else
    refused_ = candidate.estimate.refused;
}

/// True if as many plans as wanted are quicker than this one's estimate.
bool LayoutSearch::enough(std::size_t wanted, const Candidate& next) const {
  return static_cast<std::size_t>(std::ranges::count_if(candidates_, [&](const Candidate& c) {
           return c.usable() && c.step_s < next.estimate.step_s();
         })) >= wanted;
}

void LayoutSearch::sort_by_step() {
  std::ranges::stable_sort(
      candidates_, {}, [](const Candidate& c) { return std::pair(!c.usable(), c.expected_s()); });
}

/// Lets the automatic policy plan those that compute all again, where they may be among the best.
void LayoutSearch::improve(std::size_t wanted) {
  for (Candidate& candidate : candidates_) {
    if (!candidate.usable() || candidate.saved != Saved::again || enough(wanted, candidate))
      continue;
    Candidate better = candidate;
    make_plans(better, Saved::automatic);
    if (better.usable() && better.step_s < candidate.step_s) candidate = std::move(better);
  }
  sort_by_step();
}

void LayoutSearch::make_plans(Candidate& candidate) {
  candidate.planned = true;
  again_.clear();
  make_plans(candidate, Saved::as_asked);
  if (!candidate.refused.empty()) make_plans(candidate, Saved::again);
}

/// Of the first and the last rank, which hold most: the first has most microbatches under way.
void LayoutSearch::make_plans(Candidate& candidate, Saved saved) {
  const int ranks = candidate.layout.shape[Axis::pipeline];
  candidate.saved = saved;
  candidate.refused.clear();
  candidate.step_s = candidate.device_bytes = candidate.host_bytes = 0;
  const Layout planned = planned_layout(candidate.layout, effort_);
  for (int rank = 0; rank < ranks; rank += std::max(1, ranks - 1))
    add_plan(candidate, planned, rank);
  if (planned.microbatches < candidate.layout.microbatches)
    candidate.step_s *= candidate.estimate.step_s() / estimator_.estimate(planned).step_s();
}

void LayoutSearch::add_plan(Candidate& candidate, const Layout& layout, int rank) {
  if (!candidate.refused.empty()) return;
  TrainerOptions options = layout_options(deck_, data_, layout, rank);
  const double rest = memory_ - candidate.estimate.persistent_bytes;
  options.planner.enough_bytes = static_cast<std::size_t>(kSafe * rest);
  options.planner.most_device_bytes = static_cast<std::size_t>(memory_);
  try {
    if (candidate.saved == Saved::automatic) {
      options.planner.policy.kind = offload::Policy::Kind::automatic;
      options.planner.policy.device_budget_bytes = static_cast<std::int64_t>(memory_);
    }
    if (candidate.saved == Saved::again) {
      if (!again_.contains(rank)) note_again(rank, options, TrainerPlan(options));
      options.planner.policy = again_.at(rank);
      for (const offload::ModuleName& module : options.planner.policy.recompute)
        if (std::ranges::find(candidate.recompute, module.name) == candidate.recompute.end())
          candidate.recompute.push_back(module.name);
    }
    const TrainerPlan made(options);
    if (candidate.saved == Saved::as_asked) note_again(rank, options, made);
    const execution::Plan& plan = made.training().back()->plan;
    const CheckpointMemory checkpoints = planned_checkpoints(deck_, made);
    const auto device = static_cast<double>(plan.device_bytes() + checkpoints.device_bytes());
    candidate.missing_bytes = device - memory_;
    if (device > memory_)
      candidate.refused = fmt::format("needs {:.1f} GiB more, with all computed again",
                                      gib(candidate.missing_bytes));
    if (made.expected().pipeline) candidate.schedule = name(made.expected().pipeline->schedule);
    candidate.step_s = std::max(candidate.step_s, made.step_s(*made.training().back()));
    candidate.device_bytes = std::max(candidate.device_bytes, device);
    const std::size_t host = plan.bytes[static_cast<int>(Region::host)] + checkpoints.host_bytes();
    candidate.host_bytes = std::max(candidate.host_bytes, static_cast<double>(host));
  } catch (const execution::Error& error) {
    if (error.exit() != execution::Exit::usage) throw;
    candidate.refused = error.what();
  }
}

/// Keeps the policy by which a rank computes all again that the plan saves.
void LayoutSearch::note_again(int rank, const TrainerOptions& options, const TrainerPlan& plan) {
  again_[rank] = full_recompute(options.planner.policy, plan.training().back()->recorded.program);
}

void LayoutSearch::no_layout() const {
  if (least_batch_ == kNoBatch)
    for (const auto& [axis, key] : axis_keys())
      if (is_asked(key))
        execution::throw_usage("--ranks {}: no grid of the model has {}", ranks_, deck_.cite(key));
  if (!refused_.empty()) execution::throw_usage("--ranks {}: {}", ranks_, refused_);
  execution::throw_usage("--ranks {}: {} is no multiple of what any grid needs; the least is {}",
                         ranks_, inputs::cite(deck_, &inputs::TrainConfig::global_batch_size),
                         least_batch_);
}

void LayoutSearch::nothing_fits() const {
  const auto misses = [&](const Candidate& c) {
    if (!c.planned) return std::pair(true, c.estimate.persistent_bytes - memory_);
    return std::pair(false, c.missing_bytes > 0 ? c.missing_bytes : memory_);
  };
  const auto least = std::ranges::min_element(candidates_, {}, misses);
  execution::throw_usage(
      "--ranks {}: nothing was found that fits into {} of a device: of {} layouts the state of {} "
      "fits and {} were planned; {} comes closest: {}",
      ranks_, inputs::cite(deck_, &MachineConfig::device_memory_bytes), candidates_.size(),
      std::ranges::count_if(
          candidates_, [&](const Candidate& c) { return c.estimate.persistent_bytes <= memory_; }),
      planned(), least->layout.shape.describe(),
      least->planned
          ? least->refused
          : fmt::format("{:.1f} GiB too much without activations", gib(misses(*least).second)));
}

}  // namespace stowage::forecast
