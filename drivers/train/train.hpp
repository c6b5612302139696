#pragma once

#include "execution/error.hpp"
#include "inputs/deck/command_line.hpp"
#include "parallel/mpi.hpp"

namespace stowage::drivers {

/// Trains the model of a deck on the ranks of `world`, and writes its result set.
/// @return the exit code of the run: valid, invalid, or stopped by a signal
execution::Exit train(const parallel::Communicator& world, const inputs::CommandLine& command,
                      int argc, const char* const* argv);

}  // namespace stowage::drivers
