#include "drivers/bench_comm/exchange.hpp"
#include "forecast/plan/options.hpp"

#if STOWAGE_HAVE_CUDA
#include "parallel/transport/nccl.hpp"
#include "parallel/transport/peer_memory.hpp"
#endif

namespace stowage::drivers {
namespace {

using parallel::Collectives;

void append(std::vector<Exchange>& all, std::vector<Exchange>&& more) {
  for (Exchange& one : more) all.push_back(std::move(one));
}

#if STOWAGE_HAVE_CUDA
constexpr const char* kMessages = "sends and receives of NCCL, pinned";

std::vector<Exchange> gpu_exchanges(const parallel::Communicator& ranks,
                                    const std::shared_ptr<const Collectives>& group,
                                    const inputs::Deck& deck, execution::Backend& backend,
                                    std::span<const std::size_t> sizes, void* workspace) {
  parallel::NcclOptions pinned = forecast::nccl_options(deck);
  const bool stages = group->transport().group() == parallel::name(parallel::Group::pipeline);
  const bool copies = pinned.copies && !stages && parallel::PeerMemory::reachable(ranks);
  pinned.copies = false;
  std::vector<Exchange> all =
      ordered_exchanges(group, "stowage", copies ? "copy engines" : kMessages, sizes, workspace);
  append(all, nccl_exchanges(ranks, "nccl_unpinned", pinned.unpinned()));
  append(all, nccl_exchanges(ranks, "nccl", pinned));  // last: what the environment goes on to say
  if (copies)
    append(all, ordered_exchanges(
                    std::make_shared<const Collectives>(parallel::make_nccl_transport(
                        backend, ranks, group->transport().group() + " over NCCL", pinned)),
                    "stowage_over_nccl", kMessages, sizes, workspace));
  return all;
}
#endif

}  // namespace

std::vector<Exchange> all_exchanges(const parallel::Communicator& ranks,
                                    const std::shared_ptr<const Collectives>& group,
                                    [[maybe_unused]] const inputs::Deck& deck,
                                    [[maybe_unused]] execution::Backend& backend,
                                    std::span<const std::size_t> sizes, void* workspace) {
#if STOWAGE_HAVE_CUDA
  if (backend.name() == "cuda") return gpu_exchanges(ranks, group, deck, backend, sizes, workspace);
#endif
  std::vector<Exchange> all =
      ordered_exchanges(group, "stowage", "sends and receives of MPI", sizes, workspace);
  append(all, mpi_exchanges(ranks));
  return all;
}

}  // namespace stowage::drivers
