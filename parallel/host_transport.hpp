#pragma once

#include <memory>
#include <string>

#include "parallel/mpi.hpp"
#include "parallel/transport.hpp"

namespace stowage::parallel {

/// The transport of the host backend, on MPI: closures of a host queue, whose thread blocks in them.
/// Collective over `ranks`.
std::shared_ptr<Transport> make_host_transport(const Communicator& ranks, std::string group);

}  // namespace stowage::parallel
