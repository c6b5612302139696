#include "kernels/microbatch/take_row.hpp"

#include <algorithm>

#include "kernels/dispatch.hpp"

namespace stowage::kernels {

using execution::Dtype;
using execution::View;

void take_row_ref(std::int64_t width, const std::int32_t* stack, const std::int32_t* index,
                  std::int32_t* row) {
  std::copy_n(stack + *index * width, width, row);
}

void take_row(execution::Queue& queue, const View& stack, const View& index, const View& row) {
  STOWAGE_ASSERT(stack.dtype() == Dtype::int32 && row.dtype() == Dtype::int32 &&
                     index.dtype() == Dtype::int32 && stack.rank() == 2 &&
                     stack.extent(1) == row.buffer().elements(),
                 "take_row: {} has no rows like {}", stack.info->name, row.info->name);
  const Address from(stack), at(index), to(row);
  const std::int64_t width = stack.extent(1);
  run(queue, "take_row", [=] {
    take_row_ref(width, from.as<std::int32_t>(), at.as<std::int32_t>(), to.as<std::int32_t>());
  });
}

void advance_index(execution::Queue& queue, const View& index) {
  const Address at(index);
  run(queue, "advance_index", [=] { ++*at.as<std::int32_t>(); });
}

execution::Cost take_row_cost(std::int64_t width) { return {0, 8.0 * static_cast<double>(width)}; }

}  // namespace stowage::kernels
