#include <fmt/format.h>

#include <cstdlib>

#include "drivers/bench_comm/exchange.hpp"
#include "parallel/transport/nccl.hpp"

namespace stowage::drivers {
namespace {

using parallel::NcclCommunicator;

/// Elements that go to a rank, and elements that come from one.
struct Message {
  int peer;
  std::byte *sent, *received;
};

/// Sends and receives as one operation of NCCL.
void exchange(ncclComm_t nccl, std::span<const Message> sends, std::span<const Message> receives,
              std::int64_t count, cudaStream_t stream) {
  const auto elements = static_cast<std::size_t>(count);
  STOWAGE_NCCL(nccl, ncclGroupStart());
  for (const Message& m : sends)
    STOWAGE_NCCL(nccl, ncclSend(m.sent, elements, ncclFloat32, m.peer, nccl, stream));
  for (const Message& m : receives)
    STOWAGE_NCCL(nccl, ncclRecv(m.received, elements, ncclFloat32, m.peer, nccl, stream));
  STOWAGE_NCCL(nccl, ncclGroupEnd());
}

void all_to_all(ncclComm_t nccl, int ranks, const Operands& at, cudaStream_t stream) {
  std::vector<Message> messages;
  for (int r = 0; r < ranks; ++r) {
    const std::size_t begin = static_cast<std::size_t>(r * at.count) * sizeof(float);
    messages.push_back({r, at.input + begin, at.output + begin});
  }
  exchange(nccl, messages, messages, at.count, stream);
}

void enqueue(const NcclCommunicator& communicator, Kind kind, int rank, int ranks,
             execution::Queue& queue, const Operands& at) {
  const ncclComm_t nccl = communicator.handle();
  const auto stream = static_cast<cudaStream_t>(queue.stream());
  const auto count = static_cast<std::size_t>(at.count);
  switch (kind) {
    case Kind::all_reduce:
      STOWAGE_NCCL(nccl,
                   ncclAllReduce(at.input, at.output, count, ncclFloat32, ncclSum, nccl, stream));
      break;
    case Kind::reduce_scatter:
      STOWAGE_NCCL(
          nccl, ncclReduceScatter(at.input, at.output, count, ncclFloat32, ncclSum, nccl, stream));
      break;
    case Kind::all_gather:
      STOWAGE_NCCL(nccl, ncclAllGather(at.input, at.output, count, ncclFloat32, nccl, stream));
      break;
    case Kind::broadcast:
      STOWAGE_NCCL(nccl,
                   ncclBroadcast(at.input, at.output, count, ncclFloat32, kRoot, nccl, stream));
      break;
    case Kind::all_to_all:
      all_to_all(nccl, ranks, at, stream);
      break;
    case Kind::exchange: {
      const Message next[] = {{(rank + 1) % ranks, at.input, nullptr}};
      const Message before[] = {{(rank + ranks - 1) % ranks, nullptr, at.output}};
      exchange(nccl, next, before, at.count, stream);
      break;
    }
  }
  communicator.settle(name(kind));
}

/// What the environment says while the communicator is made, because a variable of the user's comes
/// first.
std::string chosen(const char* variable) {
  const char* const value = std::getenv(variable);
  return value == nullptr || *value == '\0' ? "free" : value;
}

}  // namespace

std::vector<Exchange> nccl_exchanges(const parallel::Communicator& ranks,
                                     const std::string& library,
                                     const parallel::NcclOptions& options) {
  const int rank = ranks.rank(), size = ranks.size();
  const auto nccl = std::make_shared<const NcclCommunicator>(ranks, options);
  const std::string algorithm = fmt::format(
      "algorithm {}, protocol {}, channels {}", chosen("NCCL_ALGO"), chosen("NCCL_PROTO"),
      options.channels > 0 ? fmt::format("{}", options.channels) : "free");
  std::vector<Exchange> all;
  for (const Kind kind : kKinds)
    all.push_back({kind, library, parallel::nccl_version(), algorithm, false, true,
                   can_be_in_place(kind), [=](execution::Queue& queue, const Operands& at) {
                     enqueue(*nccl, kind, rank, size, queue, at);
                   }});
  return all;
}

}  // namespace stowage::drivers
