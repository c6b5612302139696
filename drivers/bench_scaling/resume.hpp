#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "drivers/bench_scaling/point.hpp"
#include "inputs/deck/deck.hpp"
#include "results/provenance.hpp"
#include "results/result_set.hpp"

namespace stowage::drivers {

/// The points that an earlier job of the same curve has measured, with at least as many samples as
/// are asked for. None if there is no such file.
/// @param deck, ranks of this job
/// @throws Error (exit 2) for a file that is no curve of this driver, or of another deck, another
/// commit, another number or kind of machines
std::vector<results::Samples> measured_before(const std::filesystem::path& path,
                                              const inputs::Deck& deck,
                                              const std::vector<results::RankInfo>& ranks,
                                              const ScalingOptions& options);

/// All points of a set of this driver, in the order in which they were measured.
/// @throws Error (exit 2) if it is none
std::vector<results::Samples> stored_points(const std::filesystem::path& path);

}  // namespace stowage::drivers
