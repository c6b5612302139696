#include <cuda_runtime_api.h>

#include <exception>
#include <new>

#include "execution/backend.hpp"
#include "execution/cuda_check.hpp"
#include "parallel/groups/collectives.hpp"
#include "parallel/groups/grid.hpp"
#include "parallel/transport/nccl.hpp"
#include "parallel/transport/peer_memory.hpp"
#include "parallel/watch/progress_launch.hpp"
#include "parallel/watch/watchdog.hpp"

namespace stowage::parallel {
namespace {

using execution::Backend;
using execution::Dtype;
using execution::MemoryKind;

/// Whether all ranks of a group make every move. Stages of a pipeline meet their neighbours alone,
/// and mapped memory knows only meetings of all.
bool all_move(const std::string& group) { return group != name(Group::pipeline); }

class NcclTransport final : public Transport {
 public:
  NcclTransport(Backend& backend, const Communicator& ranks, std::string group,
                const NcclOptions& options)
      : group_(std::move(group)),
        ranks_(ranks.duplicate()),
        copies_(options.copies && all_move(group_) && PeerMemory::reachable(ranks)),
        rank_(ranks.rank()),
        size_(ranks.size()),
        memory_(backend.allocate(MemoryKind::host, sizeof(ProgressWords))),
        words_(new (memory_->data()) ProgressWords),
        communicator_(ranks, options),
        watchdog_(
            *words_, group_, Watchdog::Seconds(options.patience_s), end_job,
            [this] { return communicator_.error(); }, std::make_unique<HangReport>(ranks)) {}

  const std::string& group() const override { return group_; }
  int rank() const override { return rank_; }
  int size() const override { return size_; }
  int announce(const std::string& name) override { return watchdog_.announce(name); }

  void attach(std::span<std::byte> arena) override {
    const bool mapped = peers_ != nullptr;
    peers_.reset();
    // Memory must not be given back while others map it. A rank that fails does not wait for them.
    if (mapped && std::uncaught_exceptions() == 0) ranks_.barrier();
    if (copies_ && !arena.empty()) peers_ = std::make_unique<PeerMemory>(ranks_, arena);
  }

  void begin(execution::Queue& queue, int index) override {
    call_ = {index, queue.issue, 0};
    if (!peers_) STOWAGE_CUDA(launch_progress(next_note(), stream(queue)));
  }
  void end(execution::Queue& queue) override {
    ProgressNote note = peers_ ? next_note() : ProgressNote{words_};
    note.ends = true;
    if (moving_)
      peers_->meet(note, stream(queue));
    else
      STOWAGE_CUDA(launch_progress(note, stream(queue)));
    moving_ = false;
  }
  void move(execution::Queue& queue, std::span<const Transfer> transfers) override {
    if (peers_) {
      peers_->move(call_, transfers, next_note(), stream(queue));
      ++call_.move;
      moving_ = !transfers.empty();
      return;
    }
    if (transfers.empty()) return;  // in order on the stream as they are
    const ncclComm_t nccl = communicator_.handle();
    STOWAGE_NCCL(nccl, ncclGroupStart());
    for (const Transfer& t : transfers)
      if (t.sends)
        STOWAGE_NCCL(nccl, ncclSend(t.data, t.bytes, ncclInt8, t.peer, nccl, stream(queue)));
      else
        STOWAGE_NCCL(nccl, ncclRecv(t.data, t.bytes, ncclInt8, t.peer, nccl, stream(queue)));
    STOWAGE_NCCL(nccl, ncclGroupEnd());
    communicator_.settle("ncclGroupEnd");
  }

 private:
  /// A collective begins with its first meeting.
  ProgressNote next_note() const {
    return {words_, static_cast<std::uint64_t>(call_.collective), call_.move == 0, false};
  }
  static cudaStream_t stream(execution::Queue& queue) {
    STOWAGE_ASSERT(queue.stream() != nullptr, "a collective of NCCL on a queue of the host");
    return static_cast<cudaStream_t>(queue.stream());
  }

  std::string group_;
  Communicator ranks_;
  bool copies_;  ///< by copy engines, once the arenas are known
  std::unique_ptr<PeerMemory> peers_;
  PeerCall call_{};      ///< under way
  bool moving_ = false;  ///< its bytes, since ranks met last
  int rank_, size_;
  std::unique_ptr<execution::Arena> memory_;  ///< of the words, page-locked
  ProgressWords* words_;
  NcclCommunicator communicator_;
  Watchdog watchdog_;
};

std::size_t free_bytes() {
  std::size_t free = 0, total = 0;
  STOWAGE_CUDA(cudaMemGetInfo(&free, &total));
  return free;
}

/// Meets every peer once with much and once with little: NCCL connects ranks and loads code at the
/// first use of each.
void warm_up(Backend& backend, const std::shared_ptr<Transport>& transport) {
  constexpr std::int64_t kCount = std::int64_t{4} << 20;
  const Collectives collectives(transport);
  const auto queue = backend.make_queue(execution::Lane::comm, "set-up");
  const auto memory = backend.allocate(MemoryKind::device, kCount * sizeof(float));
  const auto room =
      backend.allocate(MemoryKind::device,
                       reduce_workspace_bytes(kCount, Dtype::fp32, Dtype::fp32, transport->size()));
  const int index = transport->announce("set-up");
  for (const std::int64_t count : {kCount, std::int64_t{8}})
    collectives.all_reduce(*queue, index, memory->data(), count, Dtype::fp32, Reduction::sum,
                           Dtype::fp32, room->data());
  queue->synchronize();
}

}  // namespace

std::shared_ptr<Transport> make_nccl_transport(execution::Backend& backend,
                                               const Communicator& ranks, std::string group,
                                               const NcclOptions& options,
                                               std::int64_t* device_bytes) {
  const std::size_t before = free_bytes();
  const std::shared_ptr<Transport> transport =
      std::make_shared<NcclTransport>(backend, ranks, std::move(group), options);
  warm_up(backend, transport);
  if (device_bytes != nullptr)
    *device_bytes += static_cast<std::int64_t>(before) - static_cast<std::int64_t>(free_bytes());
  return transport;
}

}  // namespace stowage::parallel
