#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "drivers/plan/plan.hpp"
#include "execution/error.hpp"
#include "forecast/measured/measured_rates.hpp"
#include "inputs/deck/command_line.hpp"

namespace stowage::drivers {

/// What the words of a command line ask of stowage_plan.
struct PlanCommand {
  inputs::CommandLine line;
  forecast::MeasuredRates rates;
  PlanOptions options;
  bool longest = false;
  bool timeline = false;
  bool digest = false;
  bool digest_ops = false;
  bool fewest = false;
  bool quick = false;
  std::string stage, trace, tokens, largest;
  std::optional<std::int64_t> ranks, best;
};

/// @throws Error (exit 2) for words that stowage_plan does not know
PlanCommand parse_plan_command(int argc, const char* const* argv);

struct PlanAnswer {
  std::string text;  ///< for standard output
  execution::Exit exit = execution::Exit::valid;
};

/// All that stowage_plan does: plans, writes the files that are asked for, and says what it found.
/// Needs no MPI.
/// @throws Error (exit 2) if the deck, or what is asked together, cannot be
PlanAnswer answer(PlanCommand command);

}  // namespace stowage::drivers
