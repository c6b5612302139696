#include "drivers/bench_comm/check.hpp"

#include <numeric>
#include <span>

namespace stowage::drivers {
namespace {

constexpr std::int64_t kLanes = 1 << 16;

}  // namespace

Definition definition(Kind kind, const Operands& operands, int rank, int ranks, bool any_order,
                      std::uint64_t seed) {
  Definition made{.seed = seed,
                  .sums = reduces(kind),
                  .any_order = any_order,
                  .ranks = ranks,
                  .sender = 0,
                  .part = operands.count,
                  .offset = 0};
  if (kind == Kind::reduce_scatter || kind == Kind::all_to_all) made.offset = rank * operands.count;
  if (kind == Kind::broadcast) made.sender = kRoot;
  if (kind == Kind::exchange) made.sender = (rank + ranks - 1) % ranks;
  return made;
}

Checker::Checker(execution::Backend& backend)
    : lanes_(backend.allocate(execution::MemoryKind::device, kLanes * sizeof(std::int64_t))),
      read_(backend.allocate(execution::MemoryKind::host, kLanes * sizeof(std::int64_t))) {}

std::int64_t Checker::count_wrong(execution::Queue& queue, const Definition& definition,
                                  const void* output, std::int64_t count) {
  execution::parallel_for(queue, kLanes,
                          CountWrong{definition, static_cast<const float*>(output), count, kLanes,
                                     reinterpret_cast<std::int64_t*>(lanes_->data())});
  queue.copy(read_->data(), lanes_->data(), read_->bytes());
  queue.synchronize();
  const std::span lanes(reinterpret_cast<const std::int64_t*>(read_->data()), kLanes);
  return std::accumulate(lanes.begin(), lanes.end(), std::int64_t{0});
}

std::int64_t Checker::check(execution::Queue& queue, const Definition& definition,
                            const Operands& at, int rank,
                            const std::function<void(execution::Queue&)>& collective) {
  execution::parallel_for(queue, at.outputs,
                          WriteSent{definition.seed, kNobody, reinterpret_cast<float*>(at.output)});
  execution::parallel_for(queue, at.inputs,
                          WriteSent{definition.seed, rank, reinterpret_cast<float*>(at.input)});
  collective(queue);
  return count_wrong(queue, definition, at.output, at.outputs);
}

}  // namespace stowage::drivers
