#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

/// How far results are from their reference, and how far they may be.
///
/// A bound is at most ten times what is measured, and follows from how the operator rounds: errors
/// by norm of independent roundings add as the square root of their number.
namespace stowage::drivers::bench {

/// How far a result is from the fp64 reference: ||out - ref|| / ||ref||.
struct Agreement {
  std::string what;  ///< "y", "dx"
  double error = 0;
  double tolerance = 0;
  bool ratio = false;     ///< `error` is that of ours over that of this peer
  std::string over = {};  ///< what was compared: "64 of 16384 rows"
  std::string measure = "||out - ref|| / ||ref||";  ///< what `error` is
};

/// "64 of 16384 rows", or "all rows".
std::string some_of(std::int64_t compared, std::int64_t all, const std::string& what);

/// What the check of an agreement measures, in words.
std::string formula(const Agreement& agreement);

/// The largest error of those that are no ratios, NaN if one is NaN; nothing if nothing was
/// compared.
std::optional<double> worst_error(const std::vector<Agreement>& agreements);

/// Bound of a sum of `terms` fp32 numbers in a tree: the errors of its levels are independent, and
/// the terms, the last rounding and what the result goes through round a few times more.
double tree_tolerance(double terms);

/// Bound of a sum of `terms` products on tensor cores. They add 16 products a step and truncate
/// (Fasi et al., PeerJ CS 7:e330, 2021), half a last place toward zero on average: that is a bias,
/// which adds up over the steps. The partial sums grow as the square root of the terms, to 2/3 of
/// the last one on average, and half a last place is 0.72 of epsilon of a sum on average: 0.5
/// epsilon for each step, and a few roundings where parts are added.
double tensor_core_tolerance(double terms);

/// ||out - ref|| / ||ref||; NaN in `out` gives NaN, which passes no check.
double relative_error(const std::vector<double>& out, const std::vector<double>& reference);

}  // namespace stowage::drivers::bench
