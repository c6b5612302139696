#include "kernels/moe/capacity.hpp"

#include "kernels/cost.hpp"
#include "kernels/moe/capacity_element.hpp"
#include "kernels/operands.hpp"

namespace stowage::kernels {

using execution::Cost;
using execution::Dtype;
using execution::Queue;
using execution::View;

namespace {

/// W of rows (1 + 3 W), which are fp32 or fp64.
std::int64_t ranks_of(const Operands& operands, const View& rows) {
  operands.rank(rows, "rows", 1);
  operands.require(rows.dtype() == Dtype::fp64 || rows.dtype() == Dtype::fp32,
                   "rows are neither fp32 nor fp64");
  operands.require(rows.extent(0) > 1 && rows.extent(0) % 3 == 1, "rows are not 1 + 3 W");
  return rows.extent(0) / 3;
}

/// Calls `work(A{})` with the type of rows.
template <class Work>
void with_type(const View& rows, Work&& work) {
  execution::with_accumulation_type(rows.dtype(), [&]<class A>() { work(A{}); });
}

}  // namespace

void limit_offsets(Queue& queue, const View& wanted, std::int64_t capacity, const View& offsets,
                   const View& demand) {
  const Operands operands("limit_offsets");
  operands.rank(offsets, "offsets", 1);
  operands.check(offsets, "offsets", Dtype::int32, {offsets.extent(0)});
  operands.same(wanted, "wanted", offsets);
  operands.check(demand, "demand", Dtype::int32, {3});
  execution::parallel_for(
      queue, offsets.extent(0),
      detail::LimitOffsets{wanted.as<const std::int32_t>(), offsets.as<std::int32_t>(),
                           demand.as<std::int32_t>(), offsets.extent(0) - 1, capacity});
}

void limit_slots(Queue& queue, const View& wanted, const View& demand) {
  const Operands operands("limit_slots");
  operands.rank(wanted, "wanted", 1);
  operands.check(wanted, "wanted", Dtype::int32, {wanted.extent(0)});
  operands.check(demand, "demand", Dtype::int32, {3});
  execution::parallel_for(queue, 1,
                          detail::LimitSlots{wanted.as<const std::int32_t>(),
                                             demand.as<std::int32_t>(), wanted.extent(0)});
}

void tell_rows(Queue& queue, const View& demand, const ExpertCapacity& capacity, std::int64_t rank,
               const View& rows) {
  const Operands operands("tell_rows");
  const std::int64_t ranks = ranks_of(operands, rows);
  operands.check(demand, "demand", Dtype::int32, {3});
  operands.require(rank >= 0 && rank < ranks, "the rank has no place in rows");
  with_type(rows, [&]<class A>(A) {
    execution::parallel_for(queue, rows.extent(0),
                            detail::TellRows<A>{demand.as<const std::int32_t>(), rows.as<A>(),
                                                ranks, rank, capacity.rows, capacity.slots});
  });
}

void judge_rows(Queue& queue, const View& rows, const View& need, const View& step_ok) {
  const Operands operands("judge_rows");
  const std::int64_t ranks = ranks_of(operands, rows);
  operands.check(need, "need", Dtype::int32, {4});
  operands.check(step_ok, "step_ok", Dtype::int32, {1});
  with_type(rows, [&]<class A>(A) {
    execution::parallel_for(queue, 4,
                            detail::JudgeRows<A>{rows.as<const A>(), need.as<std::int32_t>(),
                                                 step_ok.as<std::int32_t>(), ranks});
  });
}

Cost limit_offsets_cost(std::int64_t experts) { return {0, 2 * bytes(experts + 1, Dtype::int32)}; }

Cost limit_slots_cost(std::int64_t ranks) { return {0, bytes(ranks + 3, Dtype::int32)}; }

Cost tell_rows_cost(std::int64_t ranks, Dtype accumulation) {
  return {0, bytes(1 + 3 * ranks, accumulation)};
}

}  // namespace stowage::kernels
