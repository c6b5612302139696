#pragma once

#include <functional>

#include "execution/error.hpp"
#include "parallel/job/mpi.hpp"

namespace stowage::parallel {

/// What a driver does between the start and the end of MPI; returns its exit code.
using MainProgram = std::function<execution::Exit(const Communicator& world)>;

/// What SIGTERM, SIGINT, SIGHUP and SIGUSR1 do to a program.
enum class Stops {
  at_once,       ///< as always: they end it
  between_steps  ///< they are noted from the first moment to the last; it asks stop_signal()
};

/// The body of every driver's main(): starts MPI, runs `program`, turns an exception into one
/// message on stderr and an exit code, and ends MPI.
///
///     stowage: error: rank 3 (host n017): MPI call MPI_Allreduce(...) failed with code ...
///
/// A usage or environment error that all ranks find alike is printed by rank 0, and all leave with
/// its code. Any other error ends all ranks by MPI_Abort: the lowest failing rank prints. A program
/// that no launcher started leaves without it. Exceptions that are no execution::Error count as
/// runtime failures, but too little memory, which is the machine's. Text that does not reach
/// standard output is a failure too. Ranks that run another program, or another build of it, are
/// refused before `program` is called.
int run_main(int argc, char** argv, const MainProgram& program, Stops stops = Stops::at_once);

}  // namespace stowage::parallel
