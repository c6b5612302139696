#include "drivers/bench_comm/exchange.hpp"

#include <cstring>

#include "parallel/collectives.hpp"

namespace stowage::drivers {
namespace {

using execution::Arena;
using execution::Dtype;
using execution::Queue;
using parallel::NcclCommunicator;
using parallel::Reduction;

constexpr std::size_t kChecked = 3000;  // elements, no multiple of anything

cudaStream_t stream(Queue& queue) { return static_cast<cudaStream_t>(queue.stream()); }

/// Writes floats to the start of device memory, and reads them.
void put(Gpu& gpu, Arena& memory, const std::vector<float>& values) {
  const auto staging = gpu.host_memory(values.size() * sizeof(float));
  std::memcpy(staging->data(), values.data(), staging->bytes());
  gpu.queue().copy(memory.data(), staging->data(), staging->bytes());
  gpu.queue().synchronize();
}
std::vector<float> get(Gpu& gpu, Arena& memory, std::size_t count) {
  const auto staging = gpu.host_memory(count * sizeof(float));
  gpu.queue().copy(staging->data(), memory.data(), staging->bytes());
  gpu.queue().synchronize();
  std::vector<float> values(count);
  std::memcpy(values.data(), staging->data(), staging->bytes());
  return values;
}

/// Element i of rank r: small integers, so that sums are exact.
float element(int rank, std::size_t i) {
  return static_cast<float>((i * 7 + static_cast<std::size_t>(rank) * 3) % 101);
}
std::vector<float> elements(int rank, std::size_t count) {
  std::vector<float> values(count);
  for (std::size_t i = 0; i < count; ++i) values[i] = element(rank, i);
  return values;
}

template <class Expected>
double count_errors(const std::vector<float>& values, Expected&& expected) {
  double errors = 0;
  for (std::size_t i = 0; i < values.size(); ++i) errors += values[i] != expected(i);
  return errors;
}

double all_reduce_factor(int ranks) { return 2.0 * (ranks - 1) / ranks; }

/// In place, as training does it.
Exchange make_all_reduce(std::string name, int rank, int ranks,
                         std::function<void(Queue&, void*, std::size_t count)> reduce) {
  const auto enqueue = [reduce](Queue& queue, ExchangeBuffers& buffers, std::size_t bytes) {
    reduce(queue, buffers.from->data(), bytes / sizeof(float));
  };
  return {std::move(name), all_reduce_factor, enqueue, [=](Gpu& gpu, ExchangeBuffers& buffers) {
            put(gpu, *buffers.from, elements(rank, kChecked));
            enqueue(gpu.queue(), buffers, kChecked * sizeof(float));
            return count_errors(get(gpu, *buffers.from, kChecked), [&](std::size_t i) {
              float sum = 0;
              for (int r = 0; r < ranks; ++r) sum += element(r, i);
              return sum;
            });
          }};
}

/// Sends and receives as one operation of NCCL.
void exchange(const NcclCommunicator& nccl, const std::function<void()>& sends_and_receives) {
  STOWAGE_NCCL(nccl.handle(), ncclGroupStart());
  sends_and_receives();
  STOWAGE_NCCL(nccl.handle(), ncclGroupEnd());
  nccl.settle("ncclGroupEnd");
}

/// Part r of `from` goes to rank r.
Exchange make_all_to_all(std::shared_ptr<NcclCommunicator> nccl, int rank, int ranks) {
  const auto enqueue = [=](Queue& queue, ExchangeBuffers& buffers, std::size_t bytes) {
    const std::size_t part = bytes / sizeof(float) / static_cast<std::size_t>(ranks);
    exchange(*nccl, [&] {
      for (int r = 0; r < ranks; ++r) {
        const std::size_t at = static_cast<std::size_t>(r) * part * sizeof(float);
        STOWAGE_NCCL(nccl->handle(), ncclSend(buffers.from->data() + at, part, ncclFloat32, r,
                                              nccl->handle(), stream(queue)));
        STOWAGE_NCCL(nccl->handle(), ncclRecv(buffers.to->data() + at, part, ncclFloat32, r,
                                              nccl->handle(), stream(queue)));
      }
    });
  };
  return {"all_to_all", [](int p) { return (p - 1.0) / p; }, enqueue,
          [=](Gpu& gpu, ExchangeBuffers& buffers) {
            const std::size_t part = kChecked;
            const std::size_t all = part * static_cast<std::size_t>(ranks);
            put(gpu, *buffers.from, elements(rank, all));
            enqueue(gpu.queue(), buffers, all * sizeof(float));
            return count_errors(get(gpu, *buffers.to, all), [&](std::size_t i) {
              const auto sender = static_cast<int>(i / part);
              return element(sender, static_cast<std::size_t>(rank) * part + i % part);
            });
          }};
}

/// Every rank sends all of `from` to the next one.
Exchange make_neighbour(std::shared_ptr<NcclCommunicator> nccl, int rank, int ranks) {
  const int next = (rank + 1) % ranks, before = (rank + ranks - 1) % ranks;
  const auto enqueue = [=](Queue& queue, ExchangeBuffers& buffers, std::size_t bytes) {
    const std::size_t count = bytes / sizeof(float);
    exchange(*nccl, [&] {
      STOWAGE_NCCL(nccl->handle(), ncclSend(buffers.from->data(), count, ncclFloat32, next,
                                            nccl->handle(), stream(queue)));
      STOWAGE_NCCL(nccl->handle(), ncclRecv(buffers.to->data(), count, ncclFloat32, before,
                                            nccl->handle(), stream(queue)));
    });
  };
  return {"neighbour", [](int) { return 1.0; }, enqueue,
          [=](Gpu& gpu, ExchangeBuffers& buffers) {
            put(gpu, *buffers.from, elements(rank, kChecked));
            enqueue(gpu.queue(), buffers, kChecked * sizeof(float));
            return count_errors(get(gpu, *buffers.to, kChecked),
                                [&](std::size_t i) { return element(before, i); });
          }};
}

}  // namespace

std::vector<Exchange> all_exchanges(const parallel::Communicator& world, Gpu& gpu,
                                    const parallel::NcclOptions& options) {
  const int rank = world.rank(), ranks = world.size();
  auto nccl = std::make_shared<NcclCommunicator>(world, options);
  const auto collectives = std::make_shared<parallel::Collectives>(
      parallel::make_nccl_transport(gpu.backend(), world, "world", options));
  const int index = collectives->transport().announce("all_reduce");
  const std::shared_ptr<Arena> room = gpu.backend().allocate(
      execution::MemoryKind::device,
      parallel::reduce_workspace_bytes(std::int64_t{1} << 30, Dtype::fp32, Dtype::fp32, ranks));
  const auto ours = [=](Queue& queue, void* data, std::size_t count) {
    collectives->all_reduce(queue, index, data, static_cast<std::int64_t>(count), Dtype::fp32,
                            Reduction::sum, Dtype::fp32, room->data());
  };
  const auto plain = [=](Queue& queue, void* data, std::size_t count) {
    STOWAGE_NCCL(nccl->handle(), ncclAllReduce(data, data, count, ncclFloat32, ncclSum,
                                               nccl->handle(), stream(queue)));
    nccl->settle("ncclAllReduce");
  };
  return {make_all_reduce("all_reduce", rank, ranks, ours),
          make_all_reduce("all_reduce_nccl", rank, ranks, plain),
          make_all_to_all(nccl, rank, ranks), make_neighbour(nccl, rank, ranks)};
}

}  // namespace stowage::drivers
