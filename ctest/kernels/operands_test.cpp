// What an operator refuses before it is enqueued.
#include "kernels/operands.hpp"

#include <gtest/gtest.h>

#include "ctest/kernels/operator_arrays.hpp"
#include "execution/error.hpp"
#include "kernels/shards/shards.hpp"

namespace stowage::kernels::test {
namespace {

TEST(operands, device_code_works_on_two_storage_types) {
  const Operands operands("op");
  EXPECT_TRUE(operands.is_bf16(Dtype::bf16));
  EXPECT_FALSE(operands.is_bf16(Dtype::fp32));
  for (const Dtype other : {Dtype::fp64, Dtype::int32, Dtype::int64, Dtype::uint8})
    EXPECT_THROW((void)operands.is_bf16(other), execution::Error);
}

TEST(operands, values_of_pairs_are_of_a_type_of_sums) {
  for (const Dtype dtype : {Dtype::bf16, Dtype::int32, Dtype::int64}) {
    const Array rows(dtype, {2}, "rows"), token_row(Dtype::int32, {2}, "token_row"),
        pairs(dtype, {2}, "pairs");
    EXPECT_THROW(
        run(PairValues{2, 2, Dtype::fp32}, {.rows = rows, .token_row = token_row, .pairs = pairs}),
        execution::Error);
  }
}

}  // namespace
}  // namespace stowage::kernels::test
