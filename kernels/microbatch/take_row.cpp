#include "kernels/microbatch/take_row.hpp"

#include "kernels/microbatch/row_of_stack.hpp"

namespace stowage::kernels {

using execution::Queue;
using execution::View;

void TakeRow::run(Queue& queue, const Operands<View>& views) const {
  check(*this, views);
  execution::parallel_for(
      queue, width,
      detail::RowOfStack{views.stack.as<const std::int32_t>(), views.index.as<const std::int32_t>(),
                         views.row.as<std::int32_t>(), width});
}

void AdvanceIndex::run(Queue& queue, const Operands<View>& views) const {
  check(*this, views);
  execution::parallel_for(queue, 1, detail::AdvanceIndex{views.index.as<std::int32_t>()});
}

}  // namespace stowage::kernels
