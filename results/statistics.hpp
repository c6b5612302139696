#pragma once

#include <cstdint>
#include <limits>
#include <span>

namespace stowage::results {

inline constexpr double kNone = std::numeric_limits<double>::quiet_NaN();

/// A closed interval; NaN where there is none.
struct Interval {
  double low = kNone;
  double high = kNone;
};

/// Fewer samples have no 95 % interval of the median: their whole range misses it too often
/// (5 samples: 2 / 2^5 = 6 %).
inline constexpr std::int64_t kLeastForInterval = 6;

/// What raw samples say, without assuming their distribution.
struct Summary {
  std::int64_t count = 0;
  double median = kNone;
  double p10 = kNone;
  double p90 = kNone;
  double mad = kNone;   ///< median absolute deviation from the median, unscaled
  Interval ci95 = {};   ///< of the median, from order statistics; NaN below kLeastForInterval
  double coverage = 0;  ///< exact confidence of `ci95`, >= 0.95; 0 without one
};

/// The q-quantile (0 <= q <= 1), linear between order statistics (type 7 of Hyndman and Fan 1996).
/// NaN without samples.
double quantile(std::span<const double> samples, double q);

/// Summarises samples in any order. NaN samples make every statistic NaN.
Summary summarize(std::span<const double> samples);

}  // namespace stowage::results
