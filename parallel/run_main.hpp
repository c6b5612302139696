#pragma once

#include <functional>

#include "execution/error.hpp"
#include "parallel/mpi.hpp"

namespace stowage::parallel {

/// What a driver does between the start and the end of MPI; returns its exit code.
using MainProgram = std::function<execution::Exit(const Communicator& world)>;

/// The body of every driver's main(): starts MPI, runs `program`, turns an exception into one
/// message on stderr and an exit code, and ends MPI.
///
///     stowage: error: rank 3 (host n017): MPI call MPI_Allreduce(...) failed with code ...
///
/// A usage or environment error that all ranks find alike is printed by rank 0, and all leave with
/// its code. Any other error ends all ranks by MPI_Abort: the lowest failing rank prints.
/// Exceptions that are no execution::Error count as runtime failures.
int run_main(int argc, char** argv, const MainProgram& program);

}  // namespace stowage::parallel
