#pragma once

#include <cstdint>
#include <string>

#include "execution/error.hpp"
#include "inputs/deck/command_line.hpp"
#include "parallel/job/mpi.hpp"

namespace stowage::run {

/// What the command line of stowage_train can ask for besides the deck.
struct TrainOptions {
  std::int64_t time_ops = 0;   ///< so many last steps are timed op by op
  std::string trace;           ///< where the last of them is drawn; empty: nowhere
  std::int64_t dump_step = 0;  ///< all values of this step are written; 0: of none
  std::string dump;            ///< where to
  bool evaluate_only = false;  ///< the loss of held-out data, and no step
  std::string logits;          ///< with it: where those of its first batch go; empty: nowhere
};

/// Trains the model of a deck on the ranks of `world`, and writes its result set.
/// @return the exit code of the run: valid, invalid, or stopped by a signal
execution::Exit train(const parallel::Communicator& world, const inputs::CommandLine& command,
                      const TrainOptions& options, int argc, const char* const* argv);

}  // namespace stowage::run
