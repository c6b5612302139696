#pragma once

#include <optional>
#include <span>

#include "offload/rates.hpp"

namespace stowage::forecast {

/// The link that fits measured times best: time = latency + bytes / rate (Hockney, "The
/// communication challenge for MPP", Parallel Computing 20, 1994), by the least squares of relative
/// errors, so that short messages count as much as long ones. Nothing if there are fewer than three
/// sizes, or if the times do not grow with the bytes from a positive start.
/// @param bytes that a rank sends at least  @param time_s medians, positive
std::optional<offload::Link> fit_link(std::span<const double> bytes,
                                      std::span<const double> time_s);

/// The largest relative error of a link's times.
double worst_error(const offload::Link& link, std::span<const double> bytes,
                   std::span<const double> time_s);

}  // namespace stowage::forecast
