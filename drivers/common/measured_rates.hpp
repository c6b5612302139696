#pragma once

#include <string>
#include <vector>

#include "inputs/deck/command_line.hpp"

namespace stowage::drivers {

/// What stowage_ceilings measured, as overrides "machine.key=value" of a deck: the largest rate of
/// each kind of copy, and the median rate of the products.
/// @throws Error (exit 2) if the file is not a result set of it
std::vector<std::string> machine_overrides(const std::string& path);

/// What stowage_bench_comm measured of ours in each group, as overrides of machine.links and, for
/// groups that were not measured, of machine.allreduce_bytes_per_s: the least bandwidth of all.
/// @throws Error (exit 2) if the file is not a result set of it
std::vector<std::string> link_overrides(const std::string& path);

/// Result sets of what a machine was measured to do, as a command line names them; empty: none.
struct MeasuredRates {
  std::string ceilings;  ///< of stowage_ceilings: `--ceilings`
  std::string links;     ///< of stowage_bench_comm: `--links`
};

/// Puts what they say of the machine into the overrides, before those of the command line, which
/// still count.
/// @throws Error (exit 2) if a file is not what its option asks for
void add_measured(inputs::CommandLine& command, const MeasuredRates& rates);

}  // namespace stowage::drivers
