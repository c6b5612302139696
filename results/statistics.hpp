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

/// What raw samples say, without assuming their distribution.
struct Summary {
  std::int64_t count = 0;
  double median = kNone;
  /// Of the median, from order statistics. NaN below 6 samples, whose whole range misses it too
  /// often (5: 2 / 2^5 = 6 %).
  Interval ci95 = {};
  double coverage = 0;  ///< exact confidence of `ci95`, >= 0.95; 0 without one
};

/// The q-quantile (0 <= q <= 1), linear between order statistics (type 7 of Hyndman and Fan 1996).
/// NaN without samples.
double quantile(std::span<const double> samples, double q);

/// The interval of the median by order statistics that holds it with at least `confidence`; NaN
/// bounds where samples are too few for that, or one is NaN. Samples may be in any order.
Interval median_interval(std::span<const double> samples, double confidence);

/// The interval of the quotient of two medians: with at least 95 % both medians lie in their 97.5 %
/// intervals (Bonferroni), and the quotient between the quotients of their ends. NaN bounds below 7
/// samples of either. @param over, under positive
Interval quotient_interval(std::span<const double> over, std::span<const double> under);

/// Summarises samples in any order. NaN samples make every statistic NaN.
Summary summarize(std::span<const double> samples);

}  // namespace stowage::results
