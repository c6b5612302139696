#include <fmt/format.h>

#include <map>

#include "drivers/bench_comm/exchange.hpp"
#include "version/version.hpp"

namespace stowage::drivers {
namespace {

using execution::Dtype;
using parallel::Collectives;
using parallel::Reduction;

void enqueue(const Collectives& group, Kind kind, execution::Queue& queue, int index,
             const Operands& at, void* workspace) {
  const int rank = group.transport().rank(), ranks = group.transport().size();
  const std::size_t share_bytes = static_cast<std::size_t>(at.count) * sizeof(float);
  switch (kind) {
    case Kind::all_reduce:
      return group.all_reduce(queue, index, at.output, at.count, Dtype::fp32, Reduction::sum,
                              Dtype::fp32, workspace);
    case Kind::reduce_scatter:
      return group.reduce_scatter(queue, index, at.input, at.inputs, Dtype::fp32, Dtype::fp32,
                                  workspace);
    case Kind::all_gather:
      return group.all_gather(queue, index, at.output, share_bytes);
    case Kind::all_to_all:
      return group.all_to_all(queue, index, at.input, at.output, share_bytes);
    case Kind::broadcast:
      return group.broadcast(queue, index, at.output, at.bytes, kRoot);
    case Kind::exchange:
      break;
  }
  const parallel::Transfer transfers[] = {{(rank + 1) % ranks, true, at.input, at.bytes},
                                          {(rank + ranks - 1) % ranks, false, at.output, at.bytes}};
  group.exchange(queue, index, transfers);
}

}  // namespace

std::vector<Exchange> ordered_exchanges(const std::shared_ptr<const Collectives>& group,
                                        const std::string& library, const std::string& algorithm,
                                        std::span<const std::size_t> sizes, void* workspace) {
  const int ranks = group->transport().size();
  std::vector<Exchange> all;
  for (const Kind kind : kKinds) {
    std::map<std::size_t, int> indices;  // by the bytes that whole shares leave of a size
    for (const std::size_t size : sizes) {
      const std::size_t bytes = operands(kind, size, false, nullptr, nullptr, 0, ranks).bytes;
      indices[bytes] = group->transport().announce(fmt::format("{} of {} B", name(kind), bytes));
    }
    const bool in_place = can_be_in_place(kind);
    all.push_back({kind, library, std::string(version::build_info().release), algorithm, true,
                   !in_place, in_place, [=](execution::Queue& queue, const Operands& at) {
                     enqueue(*group, kind, queue, indices.at(at.bytes), at, workspace);
                   }});
  }
  return all;
}

}  // namespace stowage::drivers
