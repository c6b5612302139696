#include "drivers/bench_offload/report.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "drivers/bench_offload/stages.hpp"
#include "forecast/plan/memory_table.hpp"
#include "inputs/data/run_section.hpp"
#include "layers/recording/config_section.hpp"
#include "results/console.hpp"
#include "results/provenance.hpp"
#include "run/command/output_files.hpp"
#include "run/record/result_config.hpp"
#include "run/step/copies.hpp"

namespace stowage::drivers {
namespace {

using execution::Region;

std::size_t bytes(const OffloadOutcome& outcome, Region region) {
  return outcome.plan.bytes[static_cast<int>(region)];
}

double median_s(const OffloadOutcome& outcome) { return results::summarize(outcome.time_s).median; }

/// What a plan adds to another one, from the steps of the same rounds, as a part of the other one's
/// time.
results::Summary added(const OffloadOutcome& outcome, const OffloadOutcome& other) {
  const double base_s = median_s(other);
  std::vector<double> differences;
  for (std::size_t i = 0; i < outcome.time_s.size(); ++i)
    differences.push_back((outcome.time_s[i] - other.time_s[i]) / base_s);
  return results::summarize(differences);
}

/// Copies are timed where steps are issued op by op.
bool timed_copies(const OffloadOutcome& outcome) {
  return outcome.timed_modules && run::copying_s(outcome.modules) > 0;
}

/// The plan gave the bits of the first one, in every step and in the state after some.
bool same_bits(const OffloadOutcome& outcome, const OffloadOutcome& first) {
  return outcome.same_bits && outcome.state.text == first.state.text;
}

/// Part of the copies' time that compute does not wait for.
double overlap(const OffloadOutcome& outcome) {
  return 1 - run::exposed_s(outcome.modules) / run::copying_s(outcome.modules);
}

std::string measured_text(const OffloadOutcome& outcome) {
  if (!timed_copies(outcome)) return fmt::format("{:>9}{:>8}", "-", "-");
  return fmt::format("{:>9.3f}{:>8.3f}", 1e3 * run::exposed_s(outcome.modules), overlap(outcome));
}

/// What costs nothing should be as much as the link carries while forward runs, or all there is.
void check_free(const std::vector<OffloadOutcome>& outcomes, const BenchOffload& bench,
                results::Verdict& verdict) {
  if (bench.stages() > 1) return;  // copies have a stage's bubbles, too
  const auto free = std::ranges::find(outcomes, "free/off", &OffloadOutcome::name);
  if (free == outcomes.end() || !free->refused.empty()) return;
  double moved = 0, time_s = 0;
  for (const offload::ModuleSummary& module : free->modules) {
    moved += static_cast<double>(module.offloaded);
    time_s += module.d2h_s;
  }
  if (time_s == 0) return;  // no copies: everything is small
  const double room = std::min(moved / time_s * bench.forward_s(), bench.movable_bytes());
  fmt::print(
      "# free: {:.3f} GiB leave; the link carries {:.3f} GiB while forward runs ({:.3f} ms)\n",
      forecast::gib(moved), forecast::gib(room), 1e3 * bench.forward_s());
  if (!bench.on_gpu()) return;  // the planner's rates are a GPU's
  verdict.add(results::at_least("free_moves", moved / room, 0.9,
                                "bytes that leave for nothing / measured d2h rate x forward time"));
}

std::string interval_text(const results::Summary& part) {
  if (std::isnan(part.ci95.low)) return "-";  // too few steps
  return fmt::format("{:.2f}..{:.2f}", 100 * part.ci95.low, 100 * part.ci95.high);
}

}  // namespace

OffloadReport::OffloadReport(const parallel::Communicator& world, const inputs::Deck& deck,
                             const std::string& json, const run::Machine& machine, int argc,
                             const char* const* argv)
    : world_(world) {
  const std::vector<results::RankInfo> ranks = gather_ranks(world, machine);
  if (world.rank() != 0) return;
  const results::RunInfo run =
      results::begin_run(argc, argv, world.size(), inputs::read(deck, &inputs::RunConfig::seed));
  results::ResultHeader header =
      run::result_header("bench_offload", deck, run, ranks, machine.software());
  header.json = json;
  set_ = std::make_unique<results::ResultSet>(run::benchmark_path(deck, kOffloadPath), header);
  fmt::print("{}",
             results::header_text("stowage_bench_offload", run, ranks,
                                  {{"model", inputs::read(deck, &layers::ModelConfig::pattern)},
                                   {"grid", run::grid_text(deck, world.size())}}));
  if (world.size() > 1) fmt::print("{}", results::ranks_text(ranks));
}

void OffloadReport::print(const OffloadOutcome& outcome, const OffloadOutcome& keep) const {
  if (!outcome.refused.empty()) {
    fmt::print("#   {:<26}no plan: {}\n", outcome.name, outcome.refused);
    return;
  }
  const results::Summary more = added(outcome, keep);
  const std::size_t transient = bytes(outcome, Region::transient);
  fmt::print(
      "#   "
      "{:<26}{:>8.3f}{:>7.1f}%{:>8.3f}{:>8.3f}{:>7}{:>7}{:>10.3f}{:>9.2f}{:>16}{:>10.3f}{:>7.1f}"
      "{:>9.3f}{}{:>6}\n",
      outcome.name, forecast::gib(transient), 100 * outcome.part,
      forecast::gib(outcome.bytes_in_gradient_memory), forecast::gib(bytes(outcome, Region::host)),
      outcome.counters.copies_out, outcome.counters.reruns, 1e3 * median_s(outcome),
      100 * more.median, interval_text(more), 1e3 * outcome.plan.time_s,
      100 * (outcome.plan.time_s / median_s(outcome) - 1), 1e3 * outcome.plan.exposed_s,
      measured_text(outcome), same_bits(outcome, keep) ? "same" : "OTHER");
}

void OffloadReport::add(const OffloadOutcome& outcome, const OffloadOutcome& keep) {
  const auto integer = [](std::size_t value) { return static_cast<std::int64_t>(value); };
  set_->add(results::Samples{
      .path = "offload/" + outcome.name,
      .time_s = outcome.rank_time_s,
      .ranks = world_.size(),
      .attributes = {{"transient_bytes", integer(bytes(outcome, Region::transient))},
                     {"live_bytes", integer(outcome.plan.live_bytes)},
                     {"host_bytes", integer(bytes(outcome, Region::host))},
                     {"berth_bytes", integer(outcome.bytes_in_gradient_memory)},
                     {"copies_out", std::int64_t{outcome.counters.copies_out}},
                     {"bytes_out", integer(outcome.counters.bytes_out)},
                     {"reruns", std::int64_t{outcome.counters.reruns}},
                     {"graph_launches", std::int64_t{outcome.counters.launches}},
                     {"predicted_time_s", outcome.plan.time_s},
                     {"predicted_exposed_s", outcome.plan.exposed_s},
                     {"predicted_rerun_s", outcome.rerun_s},
                     {"exposed_s", run::exposed_s(outcome.modules)},
                     {"copying_s", run::copying_s(outcome.modules)},
                     {"state_digest", outcome.state.text}}});
  for (results::ModuleCopies& row :
       run::module_rows(outcome.name, outcome.modules, outcome.timed_modules))
    set_->add(std::move(row));
  for (const results::StageNeeds& stage : outcome.stages) set_->add(stage);
  const std::string tag = "offload/" + outcome.name;
  set_->add(results::metric(tag + "/step_time", results::summarize(outcome.time_s)));
  set_->add(results::metric(tag + "/added", added(outcome, keep)));
  if (!timed_copies(outcome)) return;
  set_->add(results::metric(tag + "/exposed_copy", run::exposed_s(outcome.modules)));
  set_->add(results::metric(tag + "/overlap", overlap(outcome)));
}

/// What graphs cost or gain, plan by plan.
void OffloadReport::compare_modes(const std::vector<OffloadOutcome>& outcomes) {
  std::string text;
  for (const OffloadOutcome& outcome : outcomes) {
    const std::string eager = outcome.name.substr(0, outcome.name.rfind('/')) + "/off";
    const auto other = std::ranges::find(outcomes, eager, &OffloadOutcome::name);
    if (eager == outcome.name || other == outcomes.end() || !outcome.refused.empty() ||
        !other->refused.empty())
      continue;
    const results::Summary more = added(outcome, *other);
    text += fmt::format("#   {:<22}{:>8.2f} %{:>16}\n", outcome.name, 100 * more.median,
                        interval_text(more));
    set_->add(results::metric("offload/" + outcome.name + "/graph_cost", more));
  }
  if (!text.empty())
    fmt::print("# graphs beside the same plan op by op, 95 % of the median\n{}", text);
}

execution::Exit OffloadReport::finish(const std::vector<OffloadOutcome>& outcomes,
                                      const BenchOffload& bench) {
  const auto exit = world_.rank() == 0 ? judge(outcomes, bench) : execution::Exit::valid;
  return static_cast<execution::Exit>(world_.max(static_cast<std::int64_t>(exit)));
}

execution::Exit OffloadReport::judge(const std::vector<OffloadOutcome>& outcomes,
                                     const BenchOffload& bench) {
  fmt::print(
      "#   {:<26}{:>8}{:>8}{:>8}{:>8}{:>7}{:>7}{:>10}{:>9}{:>16}{:>10}{:>7}{:>9}{:>9}{:>8}{:>6}\n",
      "plan", "GiB", "of all", "grads", "host", "copies", "reruns", "step ms", "added %", "95 %",
      "predicted", "off %", "waits ms", "measured", "overlap", "bits");
  results::Verdict verdict;
  double other = 0, other_states = 0, differing = 0;
  double worst = 0;
  long measured = 0;
  const OffloadOutcome& keep = outcomes.front();
  for (const OffloadOutcome& outcome : outcomes) {
    print(outcome, keep);
    if (!outcome.refused.empty()) continue;
    add(outcome, keep);
    ++measured;
    other += outcome.same_bits ? 0 : 1;
    other_states += outcome.state.text == keep.state.text ? 0 : 1;
    differing += static_cast<double>(outcome.state.differing.size());
    worst = std::max(worst, std::abs(outcome.plan.time_s / median_s(outcome) - 1));
  }
  if (bench.movable_bytes() == 0)
    fmt::print("# no plan moves anything: all that is saved is below offload.min_tensor_bytes\n");
  compare_modes(outcomes);
  check_free(outcomes, bench, verdict);
  fmt::print("# copies of plans issued op by op{}\n{}", world_.size() > 1 ? ", on rank 0" : "",
             run::copies_heading("plan"));
  for (const OffloadOutcome& outcome : outcomes)
    fmt::print("{}", run::copies_text(outcome.name, outcome.modules));
  if (bench.stages() > 1) {
    fmt::print("{}", stages_heading());
    for (const OffloadOutcome& outcome : outcomes) fmt::print("{}", stages_text(outcome.stages));
  }
  verdict.add(results::at_least("plans", static_cast<double>(measured), 1, "plans measured"));
  verdict.add(results::equal("other_bits", other, 0,
                             "plans whose losses or gradient norms differ in any bit"));
  verdict.add(results::equal("other_states", other_states, 0,
                             "plans whose state after some steps of training differs in any bit"));
  if (world_.size() > 1)
    verdict.add(results::equal("copies_that_differ", differing, 0,
                               "tensors of the state that ranks share and hold other bits of"));
  set_->add(results::StateAt{kDigestedSteps, keep.state.text});
  fmt::print("# state after {} steps of training: {}\n", kDigestedSteps, keep.state.text);
  fmt::print(
      "# predictions: op times fitted by a factor of {:.3f}; worst step time off by {:.1f} %\n",
      bench.fit(), 100 * worst);
  const results::Metric headline = results::metric("offload/worst_prediction", worst);
  set_->add(headline);
  set_->finish(verdict);
  fmt::print("{}{}", results::validation_text(verdict),
             results::verdict_line(verdict, headline, set_->uuid(), set_->path()));
  return verdict.exit();
}

}  // namespace stowage::drivers
