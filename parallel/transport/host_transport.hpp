#pragma once

#include <memory>
#include <string>

#include "parallel/groups/transport.hpp"
#include "parallel/job/mpi.hpp"
#include "parallel/transport/connect.hpp"

namespace stowage::parallel {

/// The transport of the host backend, on MPI: closures of a host queue, whose thread blocks in
/// them. Collective over `ranks`. A collective that takes longer than 10 minutes ends the job.
std::shared_ptr<Transport> make_host_transport(const Communicator& ranks, const std::string& group);

/// Makes such transports with another patience. A collective that takes longer is stuck: the job is
/// ended with its name and the ranks that have not come.
MakeTransport host_transports(double patience_s);

}  // namespace stowage::parallel
