#include "forecast/layouts/layouts.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

#include "execution/error.hpp"
#include "forecast/layouts/layout_search.hpp"
#include "forecast/layouts/pasted.hpp"
#include "forecast/layouts/training_cost.hpp"
#include "forecast/plan/memory_fit.hpp"
#include "forecast/plan/memory_table.hpp"
#include "forecast/plan/parallel_section.hpp"
#include "forecast/rates/machine_section.hpp"
#include "inputs/data/run_section.hpp"
#include "offload/offload_section.hpp"
#include "results/format.hpp"

namespace stowage::forecast {
namespace {

using parallel::Axis;
using Json = nlohmann::ordered_json;

constexpr std::int64_t kMostRanks = 1 << 20;

/// Of a parameter, wherever it lies: its weight, its gradient and what an optimizer has at least.
constexpr double kLeastBytes = 8;

/// Part of a difference from which on its cause is named.
constexpr double kNamed = 0.05;

std::string_view saved_text(Saved saved) {
  if (saved == Saved::again) return "  all computed again";
  return saved == Saved::automatic ? "  offload.policy=auto" : "";
}

/// The axes above 1: "tensor x expert", or "one rank".
std::string family(const Layout& layout) {
  std::string text;
  for (const Axis axis : parallel::kAllAxes)
    if (layout.shape[axis] > 1)
      text += fmt::format("{}{}", text.empty() ? "" : " x ", parallel::name(axis));
  return text.empty() ? "one rank" : text;
}

/// "24.3 ms"; "36.26 s" of what takes long.
std::string duration(double time_s) {
  return time_s < 10 ? fmt::format("{:.1f} ms", 1e3 * time_s) : fmt::format("{:.2f} s", time_s);
}

/// Milliseconds without the sign of a sum that is zero but for rounding.
double tidy_ms(double time_s) { return std::abs(time_s) < 5e-5 ? 0 : 1e3 * time_s; }

/// What a search has found, for people and for programs.
class LayoutReport {
 public:
  LayoutReport(const LayoutSearch& search, const LayoutQuestion& question)
      : search_(search), question_(question), model_(model_size(search.deck())) {
    const auto& all = search_.candidates();
    for (std::size_t i = 0; i < all.size() && all[i].usable(); ++i)
      if (best_.size() < static_cast<std::size_t>(question.most)) best_.push_back(&all[i]);
    sort_others();
  }

  std::string text() const {
    const auto machine = machine_name();
    std::size_t width = std::string_view("layout").size();
    for (const Candidate* candidate : best_) width = std::max(width, what(*candidate).size());
    std::string text = fmt::format(
        "# layouts of {} on {} ranks{}; possible: {}, planned: {}\n"
        "# milliseconds; communication that nothing hides; GiB of one rank\n"
        "  {:<{}}{:>12}{:>11}{:>9}{:>9}{:>9}{:>8}{:>8}{:>9}{:>8}\n",
        inputs::read(search_.deck(), &inputs::RunConfig::name), search_.ranks(),
        machine.empty() ? "" : " of " + machine, search_.candidates().size(), search_.planned(),
        "layout", width, "step ms", "tok/s/rank", "compute", "layers", "bubble", "sums", "update",
        "device", "host");
    for (const Candidate* candidate : best_) text += row(*candidate, width);
    text += losers();
    if (question_.quick) text += "# quick: by plans of few microbatches, and of few layouts\n";
    text += model_.text();
    const TrainingCost cost = cost_of(*best_.front());
    text += fmt::format("# the quickest: {}\n{}", cost.speed_text(), cost.tokens_text());
    text += "# keys of these layouts, beside those of the command line\n";
    for (const Candidate* candidate : best_)
      text += fmt::format("  {}\n", pasted(keys(*candidate)));
    return text;
  }

  std::string json() const {
    Json json = {{"event", "layouts"},
                 {"time", results::utc_now()},
                 {"deck", inputs::read(search_.deck(), &inputs::RunConfig::name)},
                 {"machine", machine_name()},
                 {"ranks", search_.ranks()},
                 {"quick", question_.quick}};
    model_.add_to(json);
    json["usable_bytes"] = search_.memory();
    json["possible"] = search_.candidates().size();
    json["planned"] = search_.planned();
    json["layouts"] = Json::array();
    for (const Candidate* candidate : best_) {
      Json one = layout_json(*candidate);
      cost_of(*candidate).add_to(one);
      one["device_bytes"] = candidate->device_bytes;
      one["host_bytes"] = candidate->host_bytes;
      one["keys"] = keys(*candidate);
      json["layouts"].push_back(std::move(one));
    }
    json["others"] = Json::array();
    for (const Candidate* candidate : others_) {
      Json one = layout_json(*candidate);
      one["planned"] = candidate->usable();
      one["because"] = reason(*candidate);
      json["others"].push_back(std::move(one));
    }
    return json.dump();
  }

 private:
  std::string machine_name() const { return inputs::read(search_.deck(), &MachineConfig::name); }

  TrainingCost cost_of(const Candidate& c) const {
    return training_cost(search_.deck(), model_, search_.ranks(), c.step_s, question_.tokens);
  }

  Json layout_json(const Candidate& c) const {
    Json json = {{"layout", c.layout.shape.describe()}};
    for (const Axis axis : parallel::kAllAxes)
      json[std::string(parallel::name(axis))] = c.layout.shape[axis];
    json["microbatches"] = c.layout.microbatches;
    json["virtual_stages"] = c.layout.virtual_stages;
    if (!c.schedule.empty()) json["schedule"] = c.schedule;
    json["step_s"] = c.expected_s();
    const Estimate& e = c.estimate;
    json["estimate"] = {{"compute_s", e.compute_s},     {"exchange_s", e.exchange_s},
                        {"bubble_s", e.bubble_s},       {"gradients_s", e.gradients_s},
                        {"optimizer_s", e.optimizer_s}, {"persistent_bytes", e.persistent_bytes}};
    return json;
  }

  /// What makes a run of the deck one of this layout.
  std::vector<std::string> keys(const Candidate& c) const {
    std::vector<std::string> keys;
    const auto add = [&](std::string_view key, const auto& value) {
      keys.push_back(fmt::format("{}={}", key, value));
    };
    const auto grid = inputs::read<ParallelConfig>(search_.deck());
    const parallel::GridShape& shape = c.layout.shape;
    add(inputs::key(&ParallelConfig::data), shape[Axis::data]);
    const auto add_axis = [&](auto member, Axis axis) {
      if (shape[axis] != grid.*member) add(inputs::key(member), shape[axis]);
    };
    add_axis(&ParallelConfig::tensor, Axis::tensor);
    add_axis(&ParallelConfig::context, Axis::context);
    add_axis(&ParallelConfig::expert, Axis::expert);
    add_axis(&ParallelConfig::pipeline, Axis::pipeline);
    if (c.layout.virtual_stages != grid.virtual_stages)
      add(inputs::key(&ParallelConfig::virtual_stages), c.layout.virtual_stages);
    if (!c.schedule.empty()) add(inputs::key(&ParallelConfig::schedule), c.schedule);
    if (const int zero = c.layout.zero ? 1 : 0; zero != grid.zero)
      add(inputs::key(&ParallelConfig::zero), zero);
    if (c.saved == Saved::again) {
      add(inputs::key(&offload::OffloadConfig::kind), "none");
      add(inputs::key(&offload::OffloadConfig::recompute), fmt::format("{}", c.recompute));
    }
    if (c.saved == Saved::automatic) {
      add(inputs::key(&offload::OffloadConfig::kind), "auto");
      add(inputs::key(&offload::OffloadConfig::device_budget_bytes),
          static_cast<std::int64_t>(search_.memory()));
    }
    return keys;
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
        what(c), width, 1e3 * c.step_s,
        cost_of(c).tokens_per_s / static_cast<double>(search_.ranks()), tidy_ms(e.compute_s),
        tidy_ms(e.exchange_s), tidy_ms(e.bubble_s), tidy_ms(e.gradients_s), tidy_ms(e.optimizer_s),
        gib(c.device_bytes), gib(c.host_bytes), saved_text(c.saved));
  }

  /// The best of every family of axes that is not among the first.
  void sort_others() {
    std::vector<std::string> seen;
    for (const Candidate& candidate : search_.candidates()) {
      std::string name = family(candidate.layout);
      if (std::ranges::find(seen, name) != seen.end()) continue;
      seen.push_back(std::move(name));
      if (std::ranges::find(best_, &candidate) == best_.end()) others_.push_back(&candidate);
    }
    std::ranges::stable_sort(
        others_, {}, [&](const Candidate* c) { return std::pair(misses(*c), c->expected_s()); });
  }

  /// The others, and what each loses by.
  std::string losers() const {
    if (others_.empty()) return {};
    std::string text = fmt::format(
        "# the best of other kinds, and why they lose (estimated: beside the "
        "estimate of the first, {})\n",
        duration(best_.front()->estimate.step_s()));
    std::size_t widest = 0, longest = 0;
    for (const Candidate* candidate : others_) {
      widest = std::max(widest, family(candidate->layout).size());
      longest = std::max(longest, candidate->layout.shape.describe().size());
    }
    for (const Candidate* candidate : others_)
      text += fmt::format("  {:<{}}  {:<{}}  {}\n", family(candidate->layout), widest,
                          candidate->layout.shape.describe(), longest, reason(*candidate));
    return text;
  }

  std::string reason(const Candidate& c) const {
    const Candidate& first = *best_.front();
    if (c.planned && !c.refused.empty()) return c.refused;
    if (c.estimate.persistent_bytes > search_.memory())
      return fmt::format("parameters and optimizer alone need {:.1f} GiB more",
                         gib(c.estimate.persistent_bytes - search_.memory()));
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
                     c.expected_s() - mine.step_s() - (first_s - theirs.step_s())}};
    std::ranges::stable_sort(parts, std::greater<>(),
                             [](const Part& p) { return std::abs(p.more_s); });
    const double step_s = c.expected_s(), more_s = step_s - first_s;
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
    return (c.planned && !c.refused.empty()) || c.estimate.persistent_bytes > search_.memory();
  }

  const LayoutSearch& search_;
  const LayoutQuestion& question_;
  ModelSize model_;
  std::vector<const Candidate*> best_;
  std::vector<const Candidate*> others_;  ///< the best of every other kind, the quickest first
};

LayoutAnswer report(LayoutSearch& search, const LayoutQuestion& question) {
  const LayoutReport report(search, question);
  return {report.text(), report.json()};
}

LayoutSearch::Effort effort(const LayoutQuestion& question) {
  return question.quick ? LayoutSearch::Effort::quick : LayoutSearch::Effort::full;
}

/// The next number of ranks that is tried: hosts have eight, clusters powers of two of them.
std::int64_t more(std::int64_t ranks) {
  return ranks < 8 ? ranks + 1 : ranks < 64 ? ranks + 8 : 2 * ranks;
}

LayoutAnswer find_fewest(const inputs::Deck& deck, const LayoutQuestion& question) {
  require_rates(deck, "--fewest");
  const auto memory = static_cast<double>(usable_memory(deck, "--fewest"));
  const double least_bytes = kLeastBytes * model_size(deck).parameters;
  for (std::int64_t ranks = 1; ranks <= kMostRanks; ranks = more(ranks)) {
    if (least_bytes / static_cast<double>(ranks) > memory) continue;
    std::optional<LayoutSearch> search;
    try {
      search.emplace(deck, ranks, effort(question));
    } catch (const execution::Error& error) {
      // A number that does not divide the batch or the model says nothing of the next one.
      if (error.exit() != execution::Exit::usage) throw;
      continue;
    }
    if (search->plan(static_cast<std::size_t>(question.most))) {
      LayoutAnswer answer = report(*search, question);
      answer.text.insert(0, fmt::format("# the fewest ranks that fit: {}\n", ranks));
      return answer;
    }
  }
  execution::throw_usage("--fewest: no layout of up to {} ranks fits", kMostRanks);
}

}  // namespace

LayoutAnswer find_layouts(const inputs::Deck& deck, const LayoutQuestion& question) {
  if (question.ranks && (*question.ranks < 1 || *question.ranks > kMostRanks))
    execution::throw_usage("--ranks {}: must be between 1 and {}", *question.ranks, kMostRanks);
  if (question.most < 1 || question.most > kMostPlans)
    execution::throw_usage("--best {}: must be between 1 and {}", question.most, kMostPlans);
  if (!question.ranks) return find_fewest(deck, question);
  LayoutSearch search(deck, *question.ranks, effort(question));
  if (!search.plan(static_cast<std::size_t>(question.most))) search.nothing_fits();
  return report(search, question);
}

}  // namespace stowage::forecast
