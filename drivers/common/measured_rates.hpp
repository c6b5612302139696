#pragma once

#include <string>
#include <vector>

#include "inputs/deck/command_line.hpp"
#include "inputs/deck/deck.hpp"
#include "results/output_path.hpp"

namespace stowage::drivers {

/// What stowage_ceilings measured, as overrides "machine.key=value" of a deck: the largest rate of
/// each kind of copy, and the median rate of the products.
/// @throws Error (exit 2) if the file is not a result set of it
std::vector<std::string> machine_overrides(const std::string& path);

/// What stowage_bench_comm measured of ours in each group, of each kind of collective and of all,
/// as overrides of machine.links for groups of so many ranks; groups that were not measured have
/// those of the slowest group ("any") of each set, and machine.allreduce_bytes_per_s is the
/// bandwidth of the slowest of all.
/// @throws Error (exit 2) if a file is not a result set of it
std::vector<std::string> link_overrides(const std::vector<std::string>& paths);

/// What steps that were timed op by op say of the machine of a deck (measured_ops), as overrides of
/// machine.op_efficiency and, where enough sizes were exchanged, of machine.links_beside.
/// @throws Error (exit 2) if a file is no result set of them
std::vector<std::string> op_overrides(const std::vector<std::string>& paths,
                                      const inputs::Deck& deck);

/// Result sets of what a machine was measured to do, as a command line names them; empty: none.
struct MeasuredRates {
  std::string ceilings;  ///< of stowage_ceilings: `--ceilings`
  std::string links;     ///< of stowage_bench_comm, with commas between them: `--links`
  std::string ops;       ///< of stowage_train --time-ops, with commas between them: `--ops`

  /// Those that are named, as what no output may replace.
  std::vector<results::NamedPath> files() const;
};

/// Puts what they say of the machine into the overrides, before those of the command line, which
/// still count.
/// @throws Error (exit 2) if a file is not what its option asks for
void add_measured(inputs::CommandLine& command, const MeasuredRates& rates);

}  // namespace stowage::drivers
