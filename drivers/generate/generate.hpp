#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "inputs/deck/command_line.hpp"
#include "parallel/job/mpi.hpp"

namespace stowage::drivers {

/// What the command line of stowage_generate asks for besides the deck.
struct GenerateOptions {
  std::vector<std::string> prompts;
  std::string prompt_file;
  std::int64_t tokens = 64;
  double temperature = 0;
  double top_p = 1;
  std::int64_t seed = 0;
  std::string weights = "trained";
  bool initial_weights = false;
};

/// Prints what the model of a deck says behind each prompt, and writes it as JSON lines.
/// @throws Error (exit 2) for options, prompts or a checkpoint that are refused
void generate(const parallel::Communicator& world, const inputs::CommandLine& command,
              const GenerateOptions& options);

}  // namespace stowage::drivers
