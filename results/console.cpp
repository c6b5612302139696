#include "results/console.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

#include "results/format.hpp"
#include "results/links.hpp"
#include "version/version.hpp"

namespace stowage::results {
namespace {

/// Numbers with four digits, and with all before the point: files and JSON lines have the rest.
std::string shown(const Value& value) {
  if (const auto* number = std::get_if<double>(&value))
    return std::abs(*number) < 1000 ? fmt::format("{:.4g}", *number)
                                    : fmt::format("{:.0f}", *number);
  return std::visit([](const auto& held) { return fmt::format("{}", held); }, value);
}

/// The threshold as a file has it, but that any finite number passes is said so.
std::string shown_threshold(const Check& check) {
  constexpr double kLargest = std::numeric_limits<double>::max();
  const bool any = check.low <= -kLargest && check.high == kLargest;
  return any ? "finite" : check.threshold();
}

std::string interval_text(const Metric& metric) {
  if (std::isnan(metric.ci95.low)) return "";
  return fmt::format("{} .. {}", quantity(metric.ci95.low, metric.unit),
                     quantity(metric.ci95.high, metric.unit));
}

}  // namespace

std::string header_text(std::string_view program, const RunInfo& run,
                        std::span<const RankInfo> ranks, const Fields& facts) {
  std::set<std::string> hosts;
  for (const auto& rank : ranks) hosts.insert(rank.host);
  const auto& build = version::build_info();
  std::string text = fmt::format("# {} {} ({})  np {} on {} host{}  seed {}\n", program,
                                 build.release, build.git_describe, run.ranks, hosts.size(),
                                 hosts.size() == 1 ? "" : "s", run.seed);
  std::size_t widest = 0;
  for (const auto& fact : facts) widest = std::max(widest, fact.name.size());
  for (const auto& fact : facts)
    text += fmt::format("#   {:<{}}  {}\n", fact.name, widest, shown(fact.value));
  return text;
}

std::string ranks_text(std::span<const RankInfo> ranks) {
  std::size_t host = 4;
  std::size_t gpu = 3;
  std::size_t cpus = 4;
  for (const auto& rank : ranks) {
    host = std::max(host, rank.host.size());
    gpu = std::max(gpu, rank.gpu_name.size());
    cpus = std::max(cpus, rank.cpuset.size());
  }
  std::string text = fmt::format("# {:>4}  {:<{}}  {:<{}}  {:<12}  {:<5}  {:<{}}  {:>7}\n", "rank",
                                 "host", host, "gpu", gpu, "pci", "numa", "cpus", cpus, "threads");
  const auto or_dash = [](const std::string& word) { return word.empty() ? "-" : word; };
  for (const auto& rank : ranks)
    text += fmt::format("# {:>4}  {:<{}}  {:<{}}  {:<12}  {:<5}  {:<{}}  {:>7}\n", rank.rank,
                        rank.host, host, or_dash(rank.gpu_name), gpu, or_dash(rank.gpu_pci),
                        or_dash(rank.numa_nodes), or_dash(rank.cpuset), cpus, rank.threads);
  for (const auto& row : link_lines(ranks)) text += fmt::format("# {}\n", row);
  for (const auto& row : differences(ranks)) text += fmt::format("# WARN {}\n", row);
  for (const auto& row : warnings(ranks)) text += fmt::format("# WARN {}\n", row);
  return text;
}

std::string metrics_text(std::span<const Metric> metrics) {
  std::size_t widest = 6;
  for (const auto& metric : metrics) widest = std::max(widest, metric.tag.size());
  std::string text = fmt::format("# {:<{}}  {:>16}  {:<33}  {:>7}\n", "metric", widest, "value",
                                 "95 % interval of the median", "samples");
  for (const auto& metric : metrics)
    text +=
        fmt::format("  {:<{}}  {:>16}  {:<33}  {:>7}\n", metric.tag, widest,
                    quantity(metric.value, metric.unit), interval_text(metric), metric.median_of);
  return text;
}

std::string validation_text(const Verdict& verdict) {
  std::size_t widest = 10;
  for (const auto& check : verdict.checks()) widest = std::max(widest, check.name.size());
  std::string text =
      fmt::format("# {:<{}}  {:>12}  {:<16}  result\n", "validation", widest, "value", "threshold");
  for (const auto& check : verdict.checks())
    text += fmt::format("  {:<{}}  {:>12.6g}  {:<16}  {}\n", check.name, widest, check.value,
                        shown_threshold(check), check.passed() ? "PASSED" : "FAILED");
  if (verdict.checks().empty()) text += "  no check was made\n";
  return text;
}

std::string verdict_line(const Verdict& verdict, const std::optional<Metric>& headline,
                         std::string_view uuid, const std::filesystem::path& file) {
  std::string line = fmt::format("STOWAGE RESULT {}", name(verdict.outcome()));
  if (!verdict.remark().empty()) line += fmt::format(" ({})", verdict.remark());
  if (headline)
    line += fmt::format("  {}={:.6g}  units={}", headline->tag, headline->value, headline->unit);
  if (headline && !std::isnan(headline->ci95.low))
    line += fmt::format("  ci95={:.6g}..{:.6g}", headline->ci95.low, headline->ci95.high);
  return line + fmt::format("  uuid={}  file={}\n", uuid, file.string());
}

}  // namespace stowage::results
