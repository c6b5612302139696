#include "results/metric.hpp"

#include <cstddef>

#include "execution/error.hpp"

namespace stowage::results {
namespace {

// A `*` takes one character or more, none of them a slash; `**` takes slashes too.
bool matches(std::string_view pattern, std::string_view tag) {
  if (pattern.empty() || tag.empty()) return pattern.empty() && tag.empty();
  if (pattern[0] != '*') return pattern[0] == tag[0] && matches(pattern.substr(1), tag.substr(1));
  const bool slashes = pattern.starts_with("**");
  for (std::size_t taken = 1; taken <= tag.size(); ++taken) {
    if (!slashes && tag[taken - 1] == '/') return false;
    if (matches(pattern.substr(slashes ? 2 : 1), tag.substr(taken))) return true;
  }
  return false;
}

}  // namespace

std::string_view name(Better better) {
  switch (better) {
    case Better::higher:
      return "higher";
    case Better::lower:
      return "lower";
    case Better::neither:
      return "neither";
  }
  return "?";
}

Metric metric(std::string_view tag, double value) {
  for (const auto& info : metric_registry())
    if (matches(info.tag, tag))
      return {.tag = std::string(tag),
              .value = value,
              .unit = std::string(info.unit),
              .better = info.better,
              .help = std::string(info.help)};
  throw execution::Error(execution::Exit::runtime,
                         fmt::format("metric {} has no row in results/metrics.toml", tag));
}

Metric metric(std::string_view tag, const Summary& summary) {
  Metric made = metric(tag, summary.median);
  made.median_of = summary.count;
  made.ci95 = summary.ci95;
  return made;
}

Metric rate_metric(std::string_view tag, double work, const Summary& time_s) {
  Metric made = metric(tag, work / time_s.median);
  made.median_of = time_s.count;
  made.ci95 = {work / time_s.ci95.high, work / time_s.ci95.low};
  return made;
}

}  // namespace stowage::results
