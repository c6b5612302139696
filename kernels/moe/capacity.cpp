#include "kernels/moe/capacity.hpp"

#include "kernels/cost.hpp"
#include "kernels/launch.hpp"
#include "kernels/moe/capacity_element.hpp"

namespace stowage::kernels {

using execution::Accumulation;
using execution::Cost;
using execution::Dtype;
using execution::Queue;
using execution::View;

void LimitOffsets::run(Queue& queue, const Operands<View>& views) const {
  check(*this, views);
  const auto o = addresses<float>(*this, views);
  execution::parallel_for(queue, experts + 1,
                          detail::LimitOffsets{o.wanted, o.offsets, o.demand, experts, capacity});
}

Cost LimitOffsets::cost() const { return {0, 2 * bytes(experts + 1, Dtype::int32)}; }

void LimitSlots::run(Queue& queue, const Operands<View>& views) const {
  check(*this, views);
  const auto o = addresses<float>(*this, views);
  execution::parallel_for(queue, 1, detail::LimitSlots{o.wanted, o.demand, ranks});
}

Cost LimitSlots::cost() const { return {0, bytes(ranks + 3, Dtype::int32)}; }

std::string TellRows::fault() const {
  return rank >= 0 && rank < ranks ? "" : "the rank has no place in rows";
}

void TellRows::run(Queue& queue, const Operands<View>& views) const {
  check(*this, views);
  execution::with_storage_type(storage, [&]<class S>() {
    const auto o = addresses<S>(*this, views);
    execution::parallel_for(queue, 1 + 3 * ranks,
                            detail::TellRows<Accumulation<S>>{o.demand, o.rows, ranks, rank,
                                                              capacity.rows, capacity.slots});
  });
}

Cost TellRows::cost() const { return {0, bytes(1 + 3 * ranks, execution::accumulation(storage))}; }

void JudgeRows::run(Queue& queue, const Operands<View>& views) const {
  check(*this, views);
  execution::with_storage_type(storage, [&]<class S>() {
    const auto o = addresses<S>(*this, views);
    execution::parallel_for(queue, 4,
                            detail::JudgeRows<Accumulation<S>>{o.rows, o.need, o.step_ok, ranks});
  });
}

}  // namespace stowage::kernels
