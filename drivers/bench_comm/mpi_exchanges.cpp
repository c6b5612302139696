#include <mpi.h>

#include <string>

#include "drivers/bench_comm/exchange.hpp"

namespace stowage::drivers {
namespace {

using parallel::Communicator;

/// Runs on the queue's thread and blocks it.
void run(const Communicator& ranks, Kind kind, const Operands& at) {
  const int count = parallel::narrow<int>(at.count);
  const MPI_Comm comm = ranks.handle();
  const int next = (ranks.rank() + 1) % ranks.size();
  const int before = (ranks.rank() + ranks.size() - 1) % ranks.size();
  const void* const input = at.in_place ? MPI_IN_PLACE : at.input;
  switch (kind) {
    case Kind::all_reduce:
      STOWAGE_MPI(MPI_Allreduce(input, at.output, count, MPI_FLOAT, MPI_SUM, comm));
      break;
    case Kind::reduce_scatter:
      STOWAGE_MPI(MPI_Reduce_scatter_block(input, at.output, count, MPI_FLOAT, MPI_SUM, comm));
      break;
    case Kind::all_gather:
      STOWAGE_MPI(MPI_Allgather(input, count, MPI_FLOAT, at.output, count, MPI_FLOAT, comm));
      break;
    case Kind::all_to_all:
      STOWAGE_MPI(MPI_Alltoall(input, count, MPI_FLOAT, at.output, count, MPI_FLOAT, comm));
      break;
    case Kind::broadcast:
      STOWAGE_MPI(MPI_Bcast(at.output, count, MPI_FLOAT, kRoot, comm));
      break;
    case Kind::exchange:
      STOWAGE_MPI(MPI_Sendrecv(at.input, count, MPI_FLOAT, next, 0, at.output, count, MPI_FLOAT,
                               before, 0, comm, MPI_STATUS_IGNORE));
      break;
  }
}

}  // namespace

std::vector<Exchange> mpi_exchanges(const Communicator& ranks) {
  const std::string library = parallel::mpi_library();
  const std::string version = library.substr(0, library.find_first_of(",\n"));
  const auto own = std::make_shared<const Communicator>(ranks.duplicate());
  std::vector<Exchange> all;
  for (const Kind kind : kKinds) {
    // Its broadcast has one buffer; in place, its reduce_scatter leaves every share in front.
    const bool in_place = can_be_in_place(kind) && kind != Kind::reduce_scatter;
    all.push_back({kind, "mpi", version, "MPI's choice", false, kind != Kind::broadcast, in_place,
                   [=](execution::Queue& queue, const Operands& at) {
                     queue.enqueue([=] { run(*own, kind, at); });
                   }});
  }
  return all;
}

}  // namespace stowage::drivers
