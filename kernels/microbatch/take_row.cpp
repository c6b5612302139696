#include "kernels/microbatch/take_row.hpp"

#include "execution/error.hpp"
#include "kernels/microbatch/row_of_stack.hpp"

namespace stowage::kernels {

using execution::Dtype;
using execution::View;

void take_row(execution::Queue& queue, const View& stack, const View& index, const View& row) {
  STOWAGE_ASSERT(stack.dtype() == Dtype::int32 && row.dtype() == Dtype::int32 &&
                     index.dtype() == Dtype::int32 && stack.rank() == 2 &&
                     stack.extent(1) == row.buffer().elements(),
                 "take_row: {} has no rows like {}", stack.info->name, row.info->name);
  const std::int64_t width = stack.extent(1);
  execution::parallel_for(
      queue, width,
      detail::RowOfStack{stack.as<const std::int32_t>(), index.as<const std::int32_t>(),
                         row.as<std::int32_t>(), width});
}

void advance_index(execution::Queue& queue, const View& index) {
  execution::parallel_for(queue, 1, detail::AdvanceIndex{index.as<std::int32_t>()});
}

execution::Cost take_row_cost(std::int64_t width) { return {0, 8.0 * static_cast<double>(width)}; }

}  // namespace stowage::kernels
