#pragma once

#include <string>
#include <vector>

namespace stowage::drivers {

/// What stowage_ceilings measured, as overrides "machine.key=value" of a deck: the largest rate of
/// each kind of copy, and the median rate of the products.
/// @throws Error (exit 2) if the file is not a result set of it
std::vector<std::string> machine_overrides(const std::string& path);

/// What stowage_bench_comm measured of ours in each group, as an override of machine.links.
/// @throws Error (exit 2) if the file is not a result set of it
std::string link_override(const std::string& path);

}  // namespace stowage::drivers
