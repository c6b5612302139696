#include <cuda_runtime_api.h>

#include <cstdio>
#include <new>

#include "execution/backend.hpp"
#include "execution/cuda_check.hpp"
#include "parallel/nccl.hpp"
#include "parallel/progress_launch.hpp"
#include "parallel/watchdog.hpp"

namespace stowage::parallel {
namespace {

using execution::Backend;
using execution::Dtype;
using execution::MemoryKind;

ncclDataType_t nccl_type(Dtype dtype) {
  switch (dtype) {
    case Dtype::fp64:
      return ncclFloat64;
    case Dtype::fp32:
      return ncclFloat32;
    case Dtype::bf16:
      return ncclBfloat16;
    case Dtype::int32:
      return ncclInt32;
    case Dtype::int64:
      return ncclInt64;
    default:
      throw execution::Error(execution::Exit::runtime,
                             fmt::format("no NCCL type for {}", execution::name(dtype)));
  }
}

ncclRedOp_t nccl_reduction(Reduction reduction) {
  switch (reduction) {
    case Reduction::sum:
      return ncclSum;
    case Reduction::min:
      return ncclMin;
    case Reduction::max:
      return ncclMax;
  }
  return ncclSum;
}

/// Ends the job from the watching thread: the others may be inside of calls that never return.
[[noreturn]] void end_job(const std::string& what) {
  const std::string line = fmt::format("stowage: error: {}{}\n", execution::error_prefix(), what);
  std::fwrite(line.data(), 1, line.size(), stderr);
  std::fflush(stderr);
  MPI_Abort(MPI_COMM_WORLD, static_cast<int>(execution::Exit::runtime));
  std::abort();
}

class NcclCollectives final : public Collectives {
 public:
  NcclCollectives(Backend& backend, const Communicator& ranks, std::string group,
                  const NcclOptions& options)
      : group_(std::move(group)),
        rank_(ranks.rank()),
        size_(ranks.size()),
        memory_(backend.allocate(MemoryKind::host, sizeof(ProgressWords))),
        words_(new (memory_->data()) ProgressWords),
        communicator_(ranks, options),
        watchdog_(*words_, group_, Watchdog::Seconds(options.patience_s), end_job,
                  [this] { return communicator_.error(); }) {}

  const std::string& group() const override { return group_; }
  int rank() const override { return rank_; }
  int size() const override { return size_; }
  int announce(const std::string& name) override { return watchdog_.announce(name); }

  void all_reduce(execution::Queue& queue, int index, void* data, std::int64_t count, Dtype dtype,
                  Reduction reduction) override {
    STOWAGE_ASSERT(queue.stream() != nullptr, "a collective of NCCL on a queue of the host");
    auto* stream = static_cast<cudaStream_t>(queue.stream());
    STOWAGE_CUDA(launch_progress_begin(words_, static_cast<std::uint64_t>(index), stream));
    STOWAGE_NCCL(communicator_.handle(),
                 ncclAllReduce(data, data, static_cast<std::size_t>(count), nccl_type(dtype),
                               nccl_reduction(reduction), communicator_.handle(), stream));
    communicator_.settle("ncclAllReduce");
    STOWAGE_CUDA(launch_progress_end(words_, stream));
  }

 private:
  std::string group_;
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

/// Runs every kind once: NCCL connects ranks and loads code at the first use of each.
void warm_up(Backend& backend, Collectives& collectives) {
  constexpr std::int64_t kCount = 1 << 20;
  const auto queue = backend.make_queue(execution::Lane::comm, "set-up");
  const auto memory = backend.allocate(MemoryKind::device, kCount * sizeof(float));
  const int index = collectives.announce("set-up");
  collectives.all_reduce(*queue, index, memory->data(), kCount, Dtype::fp32, Reduction::sum);
  collectives.all_reduce(*queue, index, memory->data(), kCount, Dtype::bf16, Reduction::sum);
  collectives.all_reduce(*queue, index, memory->data(), 1, Dtype::int32, Reduction::min);
  queue->synchronize();
}

}  // namespace

std::shared_ptr<Collectives> make_nccl_collectives(execution::Backend& backend,
                                                   const Communicator& ranks, std::string group,
                                                   const NcclOptions& options,
                                                   std::int64_t* device_bytes) {
  const std::size_t before = free_bytes();
  auto collectives = std::make_shared<NcclCollectives>(backend, ranks, std::move(group), options);
  warm_up(backend, *collectives);
  if (device_bytes != nullptr)
    *device_bytes = static_cast<std::int64_t>(before) - static_cast<std::int64_t>(free_bytes());
  return collectives;
}

}  // namespace stowage::parallel
