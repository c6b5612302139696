#pragma once

#include <string>

#include "execution/error.hpp"
#include "inputs/deck/command_line.hpp"
#include "inputs/deck/deck.hpp"

namespace stowage::drivers {

/// What stowage_plan is asked for besides the deck.
struct PlanOptions {
  int stage = 0;              ///< of the deck's pipeline: the one to plan
  bool tensors = false;       ///< list every saved tensor
  std::int64_t columns = 96;  ///< width of the picture
  double tokens = 0;          ///< of the whole training; 0: its time is not asked
};

/// "p/P": stage p of P, the first is 0.
struct StageOf {
  int stage = 0;
  int stages = 1;
};
/// @throws Error (exit 2) for anything else
StageOf parse_stage(const std::string& text);

struct PlanReport {
  std::string text;  ///< many lines
  std::string json;  ///< one line
  bool fits = true;  ///< into the machine's memory; true if that is not known
};

/// Plans the training step of a deck, proves the plan, and prints it for people: memory by class
/// over the step, what goes where and why, and times if the machine's rates are known; the figures
/// as JSON, too. Needs neither data nor a device.
PlanReport plan_report(const inputs::Deck& deck, const PlanOptions& options);

}  // namespace stowage::drivers
