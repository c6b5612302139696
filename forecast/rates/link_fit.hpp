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

/// The largest factor between a link's time and the measured one, in either direction.
double worst_factor(const offload::Link& link, std::span<const double> bytes,
                    std::span<const double> time_s);

/// A fit is taken for a link up to this `worst_factor`. Of links of NVLink that are measured alone
/// it is 2.5 at most, where NCCL changes its protocol between two sizes; of exchanges that are held
/// up by other work 6 and more.
inline constexpr double kMostOff = 3;

}  // namespace stowage::forecast
