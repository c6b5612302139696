#include "run/step/copies.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "execution/plan_shape.hpp"
#include "forecast/plan/memory_table.hpp"

namespace stowage::run {
namespace {

template <class Part>
double sum_of(const std::vector<offload::ModuleSummary>& modules, Part&& part) {
  double sum_s = 0;
  for (const offload::ModuleSummary& module : modules) sum_s += part(module);
  return sum_s;
}

/// Whether the module's copies have been timed: inside of a graph they are not.
bool seen(const offload::ModuleSummary& module) { return module.d2h_s > 0 && module.h2d_s > 0; }

/// From the first op of a step to the last one that computes: carried copies end later.
double time_of_step(const execution::Plan& plan,
                    const std::vector<execution::OpTimer::Interval>& intervals) {
  if (intervals.empty()) return 0;
  double begin_s = intervals.front().begin_s, end_s = begin_s;
  for (const execution::OpTimer::Interval& interval : intervals) {
    begin_s = std::min(begin_s, interval.begin_s);
    const execution::Step& step = plan.steps[interval.step];
    if (plan.queues[step.queue].lane == execution::Lane::compute)
      end_s = std::max(end_s, interval.end_s);
  }
  return end_s - begin_s;
}

/// "55.1", or "-" for what is not known.
std::string number(bool known, double value, int digits) {
  return known ? fmt::format("{:.{}f}", value, digits) : "-";
}

}  // namespace

std::vector<std::size_t> CountedBytes::of_last_step() const {
  std::vector<std::size_t> bytes = executor_.counted_bytes();
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] -= before_[i];
  return bytes;
}

std::vector<offload::ModuleSummary> timed_modules(
    const execution::Program& program, const execution::Plan& plan,
    const std::vector<execution::OpTimer::Interval>& intervals,
    std::vector<std::size_t> counted_bytes) {
  offload::Prediction timed;
  timed.counted_bytes = std::move(counted_bytes);
  timed.begin_s.assign(plan.steps.size(), -1);
  timed.end_s.assign(plan.steps.size(), -1);
  const double step_s = time_of_step(plan, intervals);
  const int first_carried = execution::first_carried(plan);
  for (const execution::OpTimer::Interval& interval : intervals) {
    if (interval.repetition > 0) continue;
    // A carried copy holds up the next step, whose time begins where this one's ends.
    const double from_s = interval.step < first_carried ? 0 : step_s;
    timed.begin_s[interval.step] = interval.begin_s - from_s;
    timed.end_s[interval.step] = interval.end_s - from_s;
  }
  const offload::Choice choice{
      plan.decisions, std::vector<offload::Reason>(plan.decisions.size(), offload::Reason::asked)};
  return offload::summarize(program, plan, choice, timed);
}

std::vector<results::ModuleCopies> module_rows(const std::string& plan,
                                               const std::vector<offload::ModuleSummary>& modules,
                                               bool timed) {
  const double unknown = std::nan("");
  std::vector<results::ModuleCopies> rows;
  for (const offload::ModuleSummary& m : modules) {
    const auto moved = static_cast<double>(m.offloaded);
    const bool moves = timed && m.copies > 0 && seen(m);
    rows.push_back({.plan = plan,
                    .module = m.module,
                    .bytes = static_cast<std::int64_t>(m.bytes),
                    .offloaded_bytes = static_cast<std::int64_t>(m.offloaded),
                    .recomputed_bytes = static_cast<std::int64_t>(m.recomputed),
                    .copies = m.copies,
                    .d2h_bytes_per_s = moves ? moved / m.d2h_s : unknown,
                    .h2d_bytes_per_s = moves ? moved / m.h2d_s : unknown,
                    .exposed_s = timed && (m.copies == 0 || seen(m)) ? m.waited_s : unknown});
  }
  return rows;
}

bool any_copies(const std::vector<offload::ModuleSummary>& modules) {
  return std::ranges::any_of(modules, [](const auto& module) { return module.copies > 0; });
}

double exposed_s(const std::vector<offload::ModuleSummary>& modules) {
  return sum_of(modules, [](const auto& module) { return module.waited_s; });
}

double copying_s(const std::vector<offload::ModuleSummary>& modules) {
  return sum_of(modules, [](const auto& module) { return module.d2h_s + module.h2d_s; });
}

std::string copies_heading(const std::string& label) {
  return fmt::format("#   {:<26}{:<16}{:>9}{:>8}{:>10}{:>10}{:>10}\n", label, "module", "GiB out",
                     "copies", "d2h GB/s", "h2d GB/s", "waits ms");
}

std::string copies_text(const std::string& label,
                        const std::vector<offload::ModuleSummary>& modules) {
  std::string text;
  for (const offload::ModuleSummary& m : modules) {
    if (m.copies == 0) continue;
    const auto moved = static_cast<double>(m.offloaded);
    text += fmt::format("#   {:<26}{:<16}{:>9.3f}{:>8}{:>10}{:>10}{:>10}\n", label, m.module,
                        forecast::gib(moved), m.copies, number(seen(m), moved / m.d2h_s / 1e9, 1),
                        number(seen(m), moved / m.h2d_s / 1e9, 1),
                        number(seen(m), 1e3 * m.waited_s, 3));
  }
  return text;
}

}  // namespace stowage::run
