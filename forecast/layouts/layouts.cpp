#include "forecast/layouts/layouts.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <functional>
#include <limits>
#include <map>
#include <optional>
#include <vector>

#include "execution/error.hpp"
#include "execution/printable.hpp"
#include "forecast/layouts/layout.hpp"
#include "forecast/plan/checkpoint_memory.hpp"
#include "forecast/plan/memory_fit.hpp"
#include "forecast/plan/memory_table.hpp"
#include "forecast/plan/parallel_section.hpp"
#include "forecast/plan/planned_rank.hpp"
#include "forecast/plan/policies.hpp"
#include "forecast/rates/machine_section.hpp"
#include "inputs/data/run_section.hpp"
#include "layers/recording/config_section.hpp"
#include "layers/recording/kind.hpp"

namespace stowage::forecast {
namespace {

using execution::Region;
using parallel::Axis;

/// Plans that are made at most: each takes up to a second. So many again where none of them fits.
constexpr int kMostPlans = 16;

/// Stages of a rank of a pipeline, as far as layers and microbatches allow them.
constexpr int kVirtualStages[] = {1, 2, 4};

/// Part of the memory that addresses may fill without a search for better ones; what cannot be
/// smaller is not searched for.
constexpr double kSafe = 0.98;

/// Part of a difference from which on its cause is named.
constexpr double kNamed = 0.05;

/// What becomes of saved tensors: what the deck says, or all are computed again, or the automatic
/// policy decides within the memory of the machine.
enum class Saved : unsigned char { as_asked, again, automatic };

std::string_view saved_text(Saved saved) {
  if (saved == Saved::again) return "  all computed again";
  return saved == Saved::automatic ? "  offload.policy=auto" : "";
}

/// A layout with its plan, if there is one.
struct Candidate {
  CandidateLayout layout;
  Estimate estimate;
  bool planned = false;
  double step_s = 0;
  double device_bytes = 0, host_bytes = 0;
  Saved saved = Saved::as_asked;
  double missing_bytes = 0;  ///< of the device, even so
  std::string schedule = {};
  std::string refused = {};  ///< why no plan fits

  bool usable() const { return planned && refused.empty(); }
};

std::vector<int> divisors(std::int64_t number) {
  std::vector<int> all;
  for (std::int64_t i = 1; i <= number; ++i)
    if (number % i == 0) all.push_back(static_cast<int>(i));
  return all;
}

/// The axes above 1: "tensor x expert", or "one rank".
std::string family(const CandidateLayout& layout) {
  std::string text;
  for (const Axis axis : {Axis::tensor, Axis::context, Axis::expert, Axis::pipeline, Axis::data})
    if (layout.shape[axis] > 1)
      text += fmt::format("{}{}", text.empty() ? "" : " x ", parallel::name(axis));
  return text.empty() ? "one rank" : text;
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

/// "24.3 ms"; "36.26 s" of what takes long.
std::string duration(double time_s) {
  return time_s < 10 ? fmt::format("{:.1f} ms", 1e3 * time_s) : fmt::format("{:.2f} s", time_s);
}

/// Milliseconds without the sign of a sum that is zero but for rounding.
double tidy_ms(double time_s) { return std::abs(time_s) < 5e-5 ? 0 : 1e3 * time_s; }

/// Says on stderr what a search is at, once it has lasted some seconds.
class Progress {
 public:
  void planning(int number, const CandidateLayout& layout) const {
    constexpr std::chrono::seconds kPatience{2};
    if (std::chrono::steady_clock::now() - begin_ < kPatience) return;
    execution::print_remark(fmt::format("# planning {} of at most {}: {}, {} microbatches", number,
                                        kMostPlans, layout.shape.describe(), layout.microbatches));
  }

 private:
  std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
};

class LayoutSearch {
 public:
  LayoutSearch(const inputs::Deck& deck, std::int64_t ranks)
      : deck_(deck), ranks_(ranks), memory_(static_cast<double>(usable_memory(deck, "--ranks"))) {
    require_rates(deck, "--ranks");
    enumerate();
    if (candidates_.empty()) no_layout();
    std::ranges::sort(candidates_, {}, [](const Candidate& c) { return c.estimate.step_s(); });
  }

  /// Plans in the order of the estimates until nothing later can be among the best; if nothing
  /// fits, those that hold least.
  void plan(std::size_t wanted) {
    plan_some(wanted);
    if (std::ranges::none_of(candidates_, &Candidate::usable)) {
      std::ranges::stable_sort(candidates_, {},
                               [](const Candidate& c) { return c.estimate.persistent_bytes; });
      plan_some(wanted);
    }
    sort_by_step();
    if (!candidates_.front().usable()) nothing_fits();
    improve(wanted);
  }

  std::string text(std::size_t most) const {
    const auto machine = inputs::read(deck_, &MachineConfig::name);
    std::size_t width = std::string_view("layout").size();
    std::vector<const Candidate*> best;
    for (std::size_t i = 0; i < std::min(most, candidates_.size()) && candidates_[i].usable(); ++i)
      width = std::max(width, what(*best.emplace_back(&candidates_[i])).size());
    std::string text = fmt::format(
        "# layouts of {} on {} ranks{}; possible: {}, planned: {}\n"
        "# milliseconds; communication that nothing hides; GiB of one rank\n"
        "  {:<{}}{:>12}{:>11}{:>9}{:>9}{:>9}{:>8}{:>8}{:>9}{:>8}\n",
        inputs::read(deck_, &inputs::RunConfig::name), ranks_,
        machine.empty() ? "" : " of " + machine, candidates_.size(), planned(), "layout", width,
        "step ms", "tok/s/rank", "compute", "layers", "bubble", "sums", "AdamW", "device", "host");
    for (const Candidate* candidate : best) text += row(*candidate, width);
    return text + losers(best.size());
  }

 private:
  void enumerate() {
    const auto train = inputs::read<inputs::TrainConfig>(deck_);
    const int most_experts = inputs::read(deck_, &layers::ModelConfig::Moe::experts);
    const auto pattern = inputs::read(deck_, &layers::ModelConfig::pattern);
    const auto layers = std::ranges::count_if(pattern, [](char c) { return c != '|'; });
    const auto cuts = std::ranges::count(pattern, '|');
    const bool experts = inputs::has_experts(pattern);
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
            if (!as_asked({{tensor, context, expert, pipeline, data}})) continue;
            const std::int64_t share = std::int64_t{expert} * data * train.micro_batch_size;
            const std::int64_t batch = train.global_batch_size;
            least_batch_ = std::min(least_batch_, share);
            if (batch % share != 0) continue;
            const auto microbatches = static_cast<int>(batch / share);
            for (const int stages : kVirtualStages) {
              const bool possible = pipeline > 1 && std::int64_t{pipeline} * stages <= layers &&
                                    microbatches % pipeline == 0;
              if (stages > 1 && (!possible || cuts > 0)) continue;
              consider({{{{tensor, context, expert, pipeline, data}}}, microbatches, stages});
            }
          }
        }
  }

  /// Axes that the command line gives are obeyed; what a file says of them is of its own runs.
  bool as_asked(const parallel::GridShape& shape) const {
    return std::ranges::all_of(axis_keys(), [&](const auto& axis) {
      return !is_asked(axis.key) || shape[axis.axis] == deck_.get<std::int64_t>(axis.key);
    });
  }

  bool is_asked(std::string_view key) const { return deck_.where(key) == "command line"; }

  std::ptrdiff_t planned() const { return std::ranges::count_if(candidates_, &Candidate::planned); }

  void plan_some(std::size_t wanted) {
    int plans = 0;
    for (Candidate& candidate : candidates_) {
      if (candidate.planned || candidate.estimate.persistent_bytes > memory_) continue;
      if (plans++ == kMostPlans || enough(wanted, candidate)) return;
      progress_.planning(plans, candidate.layout);
      make_plans(candidate);
    }
  }

  void consider(const CandidateLayout& layout) {
    Candidate candidate{layout, estimator_.estimate(layout)};
    if (candidate.estimate.refused.empty())
      candidates_.push_back(std::move(candidate));
    else
      refused_ = candidate.estimate.refused;
  }

  /// True if as many plans as wanted are quicker than this one's estimate.
  bool enough(std::size_t wanted, const Candidate& next) const {
    return static_cast<std::size_t>(std::ranges::count_if(candidates_, [&](const Candidate& c) {
             return c.usable() && c.step_s < next.estimate.step_s();
           })) >= wanted;
  }

  void sort_by_step() {
    std::ranges::stable_sort(candidates_, {}, [](const Candidate& c) {
      return std::pair(!c.usable(), c.usable() ? c.step_s : c.estimate.step_s());
    });
  }

  /// Lets the automatic policy plan those that compute all again, where they may be among the best.
  void improve(std::size_t wanted) {
    for (Candidate& candidate : candidates_) {
      if (!candidate.usable() || candidate.saved != Saved::again || enough(wanted, candidate))
        continue;
      Candidate better = candidate;
      make_plans(better, Saved::automatic);
      if (better.usable() && better.step_s < candidate.step_s) candidate = std::move(better);
    }
    sort_by_step();
  }

  void make_plans(Candidate& candidate) const {
    candidate.planned = true;
    make_plans(candidate, Saved::as_asked);
    if (!candidate.refused.empty()) make_plans(candidate, Saved::again);
  }

  /// Of the first and the last rank, which hold most: the first has most microbatches under way.
  void make_plans(Candidate& candidate, Saved saved) const {
    const int ranks = candidate.layout.shape[Axis::pipeline];
    candidate.saved = saved;
    candidate.refused.clear();
    candidate.step_s = candidate.device_bytes = candidate.host_bytes = 0;
    for (int rank = 0; rank < ranks; rank += std::max(1, ranks - 1)) add_plan(candidate, rank);
  }

  void add_plan(Candidate& candidate, int rank) const {
    if (!candidate.refused.empty()) return;
    TrainerOptions options = layout_options(deck_, data_, candidate.layout, rank);
    const double rest = memory_ - candidate.estimate.persistent_bytes;
    options.planner.enough_bytes = static_cast<std::size_t>(kSafe * rest);
    try {
      if (candidate.saved == Saved::automatic) {
        options.planner.policy.kind = offload::Policy::Kind::automatic;
        options.planner.policy.device_budget_bytes = static_cast<std::int64_t>(memory_);
      }
      if (candidate.saved == Saved::again)
        options.planner.policy = full_recompute(
            options.planner.policy, TrainerPlan(options).training().back()->recorded.program);
      const TrainerPlan made(options);
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
      const std::size_t host =
          plan.bytes[static_cast<int>(Region::host)] + checkpoints.host_bytes();
      candidate.host_bytes = std::max(candidate.host_bytes, static_cast<double>(host));
    } catch (const execution::Error& error) {
      if (error.exit() != execution::Exit::usage) throw;
      candidate.refused = error.what();
    }
  }

  double tokens_per_s_and_rank(double step_s) const {
    return static_cast<double>(inputs::read(deck_, &inputs::TrainConfig::global_batch_size) *
                               inputs::read(deck_, &inputs::TrainConfig::seq_length)) /
           step_s / static_cast<double>(ranks_);
  }

  static std::string what(const Candidate& c) {
    std::string what = c.layout.shape.describe();
    if (c.layout.microbatches > 1) what += fmt::format(", {} microbatches", c.layout.microbatches);
    if (!c.schedule.empty()) what += ", " + c.schedule;
    if (c.layout.virtual_stages > 1) what += fmt::format(" of {}", c.layout.virtual_stages);
    return what;
  }

  std::string row(const Candidate& c, std::size_t width) const {
    const Estimate& e = c.estimate;
    return fmt::format(
        "  {:<{}}{:>12.3f}{:>11.0f}{:>9.1f}{:>9.1f}{:>9.1f}{:>8.1f}{:>8.1f}{:>9.1f}{:>8.1f}{}\n",
        what(c), width, 1e3 * c.step_s, tokens_per_s_and_rank(c.step_s), tidy_ms(e.compute_s),
        tidy_ms(e.exchange_s), tidy_ms(e.bubble_s), tidy_ms(e.gradients_s), tidy_ms(e.optimizer_s),
        gib(c.device_bytes), gib(c.host_bytes), saved_text(c.saved));
  }

  /// The best of every family of axes that is not among the first, and what it loses by.
  std::string losers(std::size_t shown) const {
    std::map<std::string, const Candidate*> best;
    std::vector<std::string> order;
    for (std::size_t i = 0; i < candidates_.size(); ++i)
      if (const std::string name = family(candidates_[i].layout); best.try_emplace(name).second) {
        best[name] = &candidates_[i];
        if (i >= shown || !candidates_[i].usable()) order.push_back(name);
      }
    std::ranges::stable_sort(order, {}, [&](const std::string& name) {
      const Candidate& c = *best[name];
      return std::pair(misses(c), expected_s(c));
    });
    std::string text = order.empty() ? ""
                                     : "# the best of other kinds, and why they lose (estimated: "
                                       "beside the estimate of the best)\n";
    std::size_t widest = 0, longest = 0;
    for (const std::string& name : order) {
      widest = std::max(widest, name.size());
      longest = std::max(longest, best[name]->layout.shape.describe().size());
    }
    for (const std::string& name : order)
      text += fmt::format("  {:<{}}  {:<{}}  {}\n", name, widest,
                          best[name]->layout.shape.describe(), longest, reason(*best[name]));
    return text;
  }

  std::string reason(const Candidate& c) const {
    const Candidate& first = candidates_.front();
    if (c.planned && !c.refused.empty()) return c.refused;
    if (c.estimate.persistent_bytes > memory_)
      return fmt::format("parameters and optimizer alone need {:.1f} GiB more",
                         gib(c.estimate.persistent_bytes - memory_));
    struct Part {
      const char* name;
      double more_s;
    };
    const Estimate &mine = c.estimate, &theirs = first.estimate;
    // What has no plan is compared with the estimate of the best one.
    const double first_s = c.usable() ? first.step_s : theirs.step_s();
    Part parts[] = {{"compute", mine.compute_s - theirs.compute_s},
                    {"exchanges inside layers", mine.exchange_s - theirs.exchange_s},
                    {"bubble", mine.bubble_s - theirs.bubble_s},
                    {"sums of gradients", mine.gradients_s - theirs.gradients_s},
                    {"optimizer", mine.optimizer_s - theirs.optimizer_s},
                    {"in the plan, beyond the estimate",
                     expected_s(c) - mine.step_s() - (first_s - theirs.step_s())}};
    std::ranges::stable_sort(parts, std::greater<>(),
                             [](const Part& p) { return std::abs(p.more_s); });
    const double step_s = expected_s(c), more_s = step_s - first_s;
    std::string text = fmt::format("{}, {:+.1f} %{}:", duration(step_s),
                                   100 * (step_s / first_s - 1), c.usable() ? "" : ", estimated");
    double rest_s = more_s;
    const auto is_large = [&](double part_s) {
      return std::abs(part_s) >= kNamed * std::abs(more_s);
    };
    for (const Part& part : parts)
      if (is_large(part.more_s)) {
        text += fmt::format(" {} {:+.1f} ms,", part.name, 1e3 * part.more_s);
        rest_s -= part.more_s;
      }
    if (is_large(rest_s)) text += fmt::format(" others {:+.1f} ms,", 1e3 * rest_s);
    text.pop_back();
    return text + (c.usable() && c.saved == Saved::again ? "; all computed again" : "");
  }

  /// True if it is known that no plan of it fits.
  bool misses(const Candidate& c) const {
    return (c.planned && !c.refused.empty()) || c.estimate.persistent_bytes > memory_;
  }

  static double expected_s(const Candidate& c) {
    return c.usable() ? c.step_s : c.estimate.step_s();
  }

  [[noreturn]] void no_layout() const {
    if (least_batch_ == kNoBatch)
      for (const auto& [axis, key] : axis_keys())
        if (is_asked(key))
          execution::throw_usage("--ranks {}: no grid of the model has {}", ranks_,
                                 deck_.cite(key));
    if (!refused_.empty()) execution::throw_usage("--ranks {}: {}", ranks_, refused_);
    execution::throw_usage("--ranks {}: {} is no multiple of what any grid needs; the least is {}",
                           ranks_, inputs::cite(deck_, &inputs::TrainConfig::global_batch_size),
                           least_batch_);
  }

  /// Names the planned layout that misses least, or the one whose state is smallest if none was
  /// worth a plan.
  [[noreturn]] void nothing_fits() const {
    const auto misses = [&](const Candidate& c) {
      if (!c.planned) return std::pair(true, c.estimate.persistent_bytes - memory_);
      return std::pair(false, c.missing_bytes > 0 ? c.missing_bytes : memory_);
    };
    const auto least = std::ranges::min_element(candidates_, {}, misses);
    execution::throw_usage(
        "--ranks {}: nothing was found that fits into {} of a device: of {} layouts the state of "
        "{} "
        "fits and {} were planned; {} comes closest: {}",
        ranks_, inputs::cite(deck_, &MachineConfig::device_memory_bytes), candidates_.size(),
        std::ranges::count_if(
            candidates_,
            [&](const Candidate& c) { return c.estimate.persistent_bytes <= memory_; }),
        planned(), least->layout.shape.describe(),
        least->planned
            ? least->refused
            : fmt::format("{:.1f} GiB too much without activations", gib(misses(*least).second)));
  }

  const inputs::Deck& deck_;
  std::int64_t ranks_;
  double memory_;
  PlannedData data_ = planned_data(deck_);
  LayoutEstimator estimator_{deck_, data_};
  std::vector<Candidate> candidates_;
  std::string refused_;  ///< the last reason against a cut
  static constexpr std::int64_t kNoBatch = std::numeric_limits<std::int64_t>::max();
  std::int64_t least_batch_ = kNoBatch;
  Progress progress_;
};

}  // namespace

std::string layouts_text(const inputs::Deck& deck, std::int64_t ranks, std::int64_t most) {
  constexpr std::int64_t kMostRanks = 1 << 20;
  if (ranks < 1 || ranks > kMostRanks)
    execution::throw_usage("--ranks {}: must be between 1 and {}", ranks, kMostRanks);
  if (most < 1 || most > kMostPlans)
    execution::throw_usage("--best {}: must be between 1 and {}", most, kMostPlans);
  LayoutSearch search(deck, ranks);
  search.plan(static_cast<std::size_t>(most));
  return search.text(static_cast<std::size_t>(most));
}

}  // namespace stowage::forecast
