#pragma once

#include <cstdint>
#include <filesystem>
#include <string_view>
#include <vector>

#include "inputs/data/run_data.hpp"
#include "inputs/deck/command_line.hpp"
#include "inputs/deck/deck.hpp"
#include "results/output_path.hpp"

namespace stowage::run {

/// Where a run's result set and its JSON lines go.
struct ResultPaths {
  std::filesystem::path result;
  std::filesystem::path log;
};

/// From run.output (or run.name) and --json. A run that continues a stopped one takes its names:
/// the stopped run's set is kept as an older file, its JSON lines go on. Any other set keeps its
/// name: the continuation adds its first step to its own.
ResultPaths result_paths(const inputs::Deck& deck, const inputs::CommandLine& command,
                         std::int64_t first_step);

/// Whether a killed run has left the unfinished state of this result set.
bool left_unfinished(const inputs::Deck& deck, const inputs::CommandLine& command,
                     std::int64_t first_step);

/// Where a benchmark's result set goes: run.output, or <run.name>.<kind>.h5.
std::filesystem::path benchmark_path(const inputs::Deck& deck, std::string_view kind);

/// What a benchmark writes: its result set, and its JSON lines if --json names them.
std::vector<results::NamedPath> benchmark_outputs(const inputs::Deck& deck,
                                                  const inputs::CommandLine& command,
                                                  std::string_view kind);

/// The deck and its includes, and the result set of --from.
std::vector<results::NamedPath> deck_files(const inputs::Deck& deck,
                                           const inputs::CommandLine& command);

/// Every file that a run reads: those of the deck, and the data.
std::vector<results::NamedPath> input_files(const inputs::Deck& deck,
                                            const inputs::CommandLine& command,
                                            const inputs::Data& data);

}  // namespace stowage::run
