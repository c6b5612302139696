#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "drivers/bench_comm/kind.hpp"
#include "execution/backend.hpp"
#include "inputs/deck/deck.hpp"
#include "parallel/groups/collectives.hpp"
#include "parallel/job/mpi.hpp"
#include "parallel/transport/nccl_options.hpp"

namespace stowage::drivers {

/// One library's way to do one kind of collective in one group.
struct Exchange {
  Kind kind;
  std::string library;    ///< "stowage", "stowage_over_nccl", "nccl", "nccl_unpinned" or "mpi"
  std::string version;    ///< of the library
  std::string algorithm;  ///< what it was made to do
  bool rank_order;        ///< of its sums
  bool out_of_place, in_place;
  /// Enqueues one; all ranks of the group call it.
  std::function<void(execution::Queue& queue, const Operands& operands)> enqueue;
};

/// All that a group is measured with: ours as a training run of the deck moves bytes, and over
/// NCCL's messages where copy engines would move them; the library's own collectives, NCCL's pinned
/// as ours and free. Collective over `ranks`, those of the group.
/// @param sizes, workspace as for ordered_exchanges
std::vector<Exchange> all_exchanges(const parallel::Communicator& ranks,
                                    const std::shared_ptr<const parallel::Collectives>& group,
                                    const inputs::Deck& deck, execution::Backend& backend,
                                    std::span<const std::size_t> sizes, void* workspace);

/// Those of training: parallel::Collectives, sums in rank order.
/// @param sizes of all collectives, in bytes: each has a name of its own, since a transport keeps
/// the addresses of a call by it
/// @param workspace for reductions of the largest size
std::vector<Exchange> ordered_exchanges(const std::shared_ptr<const parallel::Collectives>& group,
                                        const std::string& library, const std::string& algorithm,
                                        std::span<const std::size_t> sizes, void* workspace);

/// MPI's own, on a queue of the host. Collective over `ranks`.
std::vector<Exchange> mpi_exchanges(const parallel::Communicator& ranks);

/// NCCL's own, on a communicator of theirs. Collective over `ranks`. CUDA only.
/// @param options as a training run pins it, or unpinned()
std::vector<Exchange> nccl_exchanges(const parallel::Communicator& ranks,
                                     const std::string& library,
                                     const parallel::NcclOptions& options);

}  // namespace stowage::drivers
