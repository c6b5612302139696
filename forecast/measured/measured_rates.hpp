#pragma once

#include <string>
#include <vector>

#include "forecast/rates/machine_facts.hpp"
#include "inputs/deck/command_line.hpp"
#include "inputs/deck/deck.hpp"
#include "results/output_path.hpp"

namespace stowage::forecast {

/// The file that `--machine` means: a path, or the name of one of inputs/machines/ without folder
/// and suffix. @throws Error (exit 2) that lists the names, if it is none of them
std::string machine_file(const std::string& name_or_path);

/// The keys that a file of inputs/machines/ sets.
/// @throws Error (exit 2) if the file cannot be read, or sets what is not of [machine]
inputs::Deck::Settings machine_file_settings(const std::string& path);

/// Facts that stowage_ceilings measured: the largest rate of each kind of copy, the median rate of
/// the products, and the slowdowns of compute.
/// @throws Error (exit 2) if the file is not a result set of it
MachineFacts measured_ceilings(const std::string& path);

/// Facts that stowage_bench_comm measured with Stowage's own collectives:
/// - `links`: of each group for groups of so many ranks, of each kind of collective and of all;
///   groups that were not measured have those of the slowest group ("any") of each set;
/// - `allreduce_bytes_per_s`: the bandwidth of the slowest of all.
/// @throws Error (exit 2) if a file is not a result set of it
MachineFacts measured_links(const std::vector<std::string>& paths);

/// What a machine can do, as a command line names it: later ones replace what earlier ones say;
/// empty: none.
struct MeasuredRates {
  std::string machine;   ///< as machine_file takes it: `--machine`
  std::string ceilings;  ///< of stowage_ceilings: `--ceilings`
  std::string links;     ///< of stowage_bench_comm, with commas between them: `--links`
  std::string ops;       ///< of stowage_train --time-ops, with commas between them: `--ops`

  /// Those that are named, as what no output may replace.
  std::vector<results::NamedPath> files() const;
};

/// The deck that a command line asks for (read_deck), with the facts of `rates` in its [machine].
/// Keys on the command line still count.
/// @throws Error (exit 2) if a file is not what its option asks for
inputs::Deck read_measured_deck(const inputs::CommandLine& command, const MeasuredRates& rates,
                                bool speaks = true);

}  // namespace stowage::forecast
