#include "drivers/bench_offload/report.hpp"

#include <fmt/core.h>

#include <algorithm>

#include "results/console.hpp"
#include "results/provenance.hpp"

namespace stowage::drivers {
namespace {

using execution::Region;

std::size_t bytes(const OffloadOutcome& outcome, Region region) {
  return outcome.plan.bytes[static_cast<int>(region)];
}

double gib(std::size_t bytes) { return static_cast<double>(bytes) / (1 << 30); }

/// Median of what a plan adds to the step that keeps all, from pairs of neighbours.
results::Summary added(const OffloadOutcome& outcome) {
  std::vector<double> differences_s;
  for (std::size_t i = 0; i < outcome.time_s.size(); ++i)
    differences_s.push_back(outcome.time_s[i] - outcome.keep_s[i]);
  return results::summarize(differences_s);
}

}  // namespace

OffloadReport::OffloadReport(const inputs::Deck& deck, const results::RankInfo& rank, int argc,
                             const char* const* argv) {
  const results::RunInfo run =
      results::begin_run(argc, argv, 1, deck.get<std::int64_t>("run.seed"));
  const std::vector<results::RankInfo> ranks{rank};
  const results::ResultHeader header{.driver = "bench_offload",
                                     .deck_given = deck.given(),
                                     .deck_resolved = deck.text(),
                                     .config = {},
                                     .run = run,
                                     .ranks = ranks,
                                     .software = results::software({}),
                                     .files = {}};
  const std::string& given = deck.get<std::string>("run.output");
  set_ = std::make_unique<results::ResultSet>(
      given.empty() ? deck.get<std::string>("run.name") + ".offload.h5" : given, header);
  fmt::print("{}", results::header_text("stowage_bench_offload", run, ranks,
                                        {{"model", deck.get<std::string>("model.pattern")}}));
  fmt::print("#   {:<18}{:>9}{:>8}{:>9}{:>7}{:>7}{:>10}{:>9}{:>16}{:>10}{:>9}{:>6}\n", "plan",
             "GiB", "of all", "host GiB", "copies", "reruns", "step ms", "added %", "95 %",
             "predicted", "waits ms", "bits");
}

void OffloadReport::print(const OffloadOutcome& outcome) const {
  if (!outcome.refused.empty()) {
    fmt::print("#   {:<18}no plan: {}\n", outcome.name, outcome.refused);
    return;
  }
  const results::Summary time_s = results::summarize(outcome.time_s);
  const results::Summary keep_s = results::summarize(outcome.keep_s);
  const results::Summary more = added(outcome);
  const auto percent = [&](double s) { return 100 * s / keep_s.median; };
  const std::size_t transient = bytes(outcome, Region::transient);
  fmt::print(
      "#   {:<18}{:>9.3f}{:>7.1f}%{:>9.3f}{:>7}{:>7}{:>10.3f}{:>9.2f}{:>16}{:>10.3f}{:>9.3f}"
      "{:>6}\n",
      outcome.name, gib(transient), 100 * outcome.part, gib(bytes(outcome, Region::host)),
      outcome.counters.copies_out, outcome.counters.reruns, 1e3 * time_s.median,
      percent(more.median),
      fmt::format("{:.2f}..{:.2f}", percent(more.ci95.low), percent(more.ci95.high)),
      1e3 * outcome.plan.time_s, 1e3 * outcome.plan.exposed_s,
      outcome.same_bits ? "same" : "OTHER");
}

void OffloadReport::add(const OffloadOutcome& outcome) {
  print(outcome);
  std::fflush(stdout);
  if (!outcome.refused.empty()) return;
  const auto integer = [](std::size_t value) { return static_cast<std::int64_t>(value); };
  set_->add(results::Samples{
      .path = "offload/" + outcome.name,
      .time_s = outcome.time_s,
      .attributes = {{"transient_bytes", integer(bytes(outcome, Region::transient))},
                     {"host_bytes", integer(bytes(outcome, Region::host))},
                     {"copies_out", std::int64_t{outcome.counters.copies_out}},
                     {"bytes_out", integer(outcome.counters.bytes_out)},
                     {"reruns", std::int64_t{outcome.counters.reruns}},
                     {"graph_launches", std::int64_t{outcome.counters.launches}},
                     {"predicted_time_s", outcome.plan.time_s},
                     {"predicted_exposed_s", outcome.plan.exposed_s},
                     {"predicted_rerun_s", outcome.rerun_s},
                     {"added_time_s", added(outcome).median}}});
  set_->add(results::Samples{.path = "offload_beside/" + outcome.name, .time_s = outcome.keep_s});
}

execution::Exit OffloadReport::finish(const std::vector<OffloadOutcome>& outcomes, double fit) {
  results::Verdict verdict;
  double other = 0;
  double worst = 0;
  long measured = 0;
  for (const OffloadOutcome& outcome : outcomes) {
    if (!outcome.refused.empty()) continue;
    ++measured;
    other += outcome.same_bits ? 0 : 1;
    const double median_s = results::summarize(outcome.time_s).median;
    worst = std::max(worst, std::abs(outcome.plan.time_s / median_s - 1));
  }
  verdict.add(results::at_least("plans", static_cast<double>(measured), 1, "plans measured"));
  verdict.add(results::equal("other_bits", other, 0,
                             "plans whose losses or gradient norms differ in any bit"));
  fmt::print(
      "# predictions: op times fitted by a factor of {:.3f}; worst step time off by {:.1f} %\n",
      fit, 100 * worst);
  const results::Metric headline{.tag = "offload/worst_prediction",
                                 .value = worst,
                                 .unit = "1",
                                 .better = results::Better::lower,
                                 .help = "largest relative error of a predicted step time"};
  set_->add(headline);
  set_->finish(verdict);
  fmt::print("{}{}", results::validation_text(verdict),
             results::verdict_line(verdict, headline, set_->uuid(), set_->path()));
  return verdict.exit();
}

}  // namespace stowage::drivers
