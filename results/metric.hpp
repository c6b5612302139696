#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "results/statistics.hpp"

namespace stowage::results {

/// Which direction of a metric is an improvement.
enum class Better { higher, lower, neither };

std::string_view name(Better better);

/// What a tag means. Tags are paths; in a registered one `*` stands for one part, `**` for one or
/// more.
struct MetricInfo {
  std::string_view tag;
  std::string_view unit;  ///< SI base units: s, B, B/s, FLOP/s, 1/s, 1, J, nat
  Better better;
  std::string_view help;
};

/// Every figure of merit of the suite: the rows of metrics.toml, made by metric_registry.py.
std::span<const MetricInfo> metric_registry();

/// One figure of merit of one run. The same object feeds the table, the JSON line and the file.
struct Metric {
  std::string tag;
  double value = kNone;
  std::string unit;
  Better better = Better::neither;
  std::string help;
  std::int64_t median_of = 1;  ///< samples behind `value`; 1: a single observation
  Interval ci95 = {};          ///< of the median; NaN without samples
};

/// A metric of a registered tag. Throws Error(Exit::runtime) for a tag that is not registered.
Metric metric(std::string_view tag, double value);

/// The median of samples, with its interval.
Metric metric(std::string_view tag, const Summary& summary);

/// Work per second, from samples of the time that the work takes: the interval is inverted.
Metric rate_metric(std::string_view tag, double work, const Summary& time_s);

}  // namespace stowage::results
