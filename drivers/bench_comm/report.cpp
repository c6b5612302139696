#include "drivers/bench_comm/report.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <string>

#include "forecast/rates/link_fit.hpp"
#include "inputs/data/run_section.hpp"
#include "results/console.hpp"
#include "results/provenance.hpp"
#include "run/command/output_files.hpp"
#include "run/record/result_config.hpp"

namespace stowage::drivers {
namespace {

constexpr const char* kOurs = "stowage";

double median_s(const CommRow& row) { return results::summarize(row.time_s).median; }

double bus_bytes(const CommRow& row) {
  return bus_factor(row.kind, row.ranks) * static_cast<double>(row.bytes);
}

/// What stands for a library where a collective is made in two ways: in place, as training does it.
bool usual(const CommRow& row) { return row.in_place || !can_be_in_place(row.kind); }

std::string of_library(const CommRow& row) {
  return fmt::format("{}/{}/{}", row.group, name(row.kind), row.library);
}

}  // namespace

std::string path(const CommRow& row) {
  return fmt::format("comm/{}/{}/{}_bytes", of_library(row),
                     row.in_place ? "in_place" : "out_of_place", row.size);
}

CommReport::CommReport(const parallel::Communicator& world, const inputs::Deck& deck,
                       const std::string& json, const run::Machine& machine, int argc,
                       const char* const* argv)
    : world_(world) {
  const std::vector<results::RankInfo> ranks = gather_ranks(world, machine);
  if (world.rank() != 0) return;
  const results::RunInfo run =
      results::begin_run(argc, argv, world.size(), inputs::read(deck, &inputs::RunConfig::seed));
  results::Fields software = {{"mpi", parallel::mpi_library()}};
  software.insert(software.end(), machine.software().begin(), machine.software().end());
  results::ResultHeader header = run::result_header("bench_comm", deck, run, ranks, software);
  header.json = json;
  set_ = std::make_unique<results::ResultSet>(run::benchmark_path(deck, kCommPath), header);
  for (results::Choice& choice : machine.choices(deck)) set_->add(std::move(choice));
  fmt::print("{}{}",
             results::header_text("stowage_bench_comm", run, ranks,
                                  {{"grid", run::grid_text(deck, world.size())}}),
             results::ranks_text(ranks));
  std::fflush(stdout);
}

void CommReport::keep(const CommRow& row) {
  const std::string at = path(row);
  set_->add(results::Samples{.path = at,
                             .time_s = row.rank_time_s,
                             .ranks = world_.size(),
                             .attributes = {{"group", row.group},
                                            {"ranks", std::int64_t{row.ranks}},
                                            {"kind", std::string(name(row.kind))},
                                            {"library", row.library},
                                            {"version", row.version},
                                            {"algorithm", row.algorithm},
                                            {"in_place", std::int64_t{row.in_place}},
                                            {"size", static_cast<std::int64_t>(row.size)},
                                            {"bytes", static_cast<std::int64_t>(row.bytes)},
                                            {"count", row.count},
                                            {"calls", std::int64_t{row.calls}},
                                            {"graph", std::int64_t{row.graph}},
                                            {"beside", row.overlapping},
                                            {"wrong", row.wrong}}});
  const results::Summary time_s = results::summarize(row.time_s);
  set_->add(results::metric(at + "/time", time_s));
  set_->add(results::rate_metric(at + "/algbw", static_cast<double>(row.bytes), time_s));
  const results::Metric busbw = results::rate_metric(at + "/busbw", bus_bytes(row), time_s);
  set_->add(busbw);
  if (row.library == kOurs) bus_bytes_per_s_.push_back(busbw.value);
  if (row.library == kOurs &&
      (headline_.tag.empty() || headline_.tag.starts_with("comm/" + of_library(row))))
    headline_ = busbw;
}

void CommReport::fit(const std::string& tag, const Points& points) {
  const auto link = forecast::fit_link(points.bytes, points.time_s);
  if (!link) return;
  const double off = forecast::worst_factor(*link, points.bytes, points.time_s);
  const bool kept = off <= forecast::kMostOff;
  fmt::print("#   {:<44}{:>10.2f} us + bytes / {:.3f} GB/s, within a factor of {:.2f}{}\n", tag,
             1e6 * link->latency_s, 1e-9 * link->bytes_per_s, off,
             kept ? "" : fmt::format(": above {}, no link, not kept", forecast::kMostOff));
  if (!kept) return;
  set_->add(results::metric(tag + "/latency", link->latency_s));
  set_->add(results::metric(tag + "/bandwidth", link->bytes_per_s));
}

void CommReport::add(const std::vector<CommRow>& rows) {
  if (!set_ || rows.empty()) return;
  fmt::print("{}", comm_table(rows));
  std::map<std::string, Points> of;
  const auto note = [](Points& points, const CommRow& row) {
    points.bytes.push_back(bus_bytes(row));
    points.time_s.push_back(median_s(row));
  };
  for (const CommRow& row : rows) {
    keep(row);
    wrong_[of_library(row)] += row.wrong;
    if (!usual(row)) continue;
    note(of[of_library(row)], row);
    if (row.library == kOurs) note(of_ours_[row.group], row);
  }
  for (const auto& [library, points] : of) fit("comm/" + library, points);
  std::fflush(stdout);
}

std::string CommReport::summary_text() const {
  std::int64_t all_wrong = 0;
  for (const auto& [library, wrong] : wrong_) all_wrong += wrong;
  double sum = 0;
  for (const double bytes_per_s : bus_bytes_per_s_) sum += bytes_per_s;
  return fmt::format("# Out of bounds values : {} {}\n# Avg bus bandwidth    : {:.6g}\n", all_wrong,
                     all_wrong == 0 ? "OK" : "FAILED",
                     1e-9 * sum / static_cast<double>(bus_bytes_per_s_.size()));
}

execution::Exit CommReport::finish() {
  results::Verdict verdict;
  if (set_) {
    for (const auto& [group, points] : of_ours_) fit(fmt::format("comm/{}/link", group), points);
    for (const auto& [library, wrong] : wrong_) {
      std::string check = library;
      std::ranges::replace(check, '/', '.');
      verdict.add(results::equal(check + ".wrong", static_cast<double>(wrong), 0,
                                 "wrong elements, all sizes and ranks"));
    }
    set_->finish(verdict);
    fmt::print("{}{}{}", summary_text(), results::validation_text(verdict),
               results::verdict_line(verdict, headline_, set_->uuid(), set_->path()));
  }
  const auto exit = set_ ? verdict.exit() : execution::Exit::valid;
  return static_cast<execution::Exit>(world_.max(static_cast<std::int64_t>(exit)));
}

}  // namespace stowage::drivers
