// What an operator refuses before it is enqueued.
#include "kernels/operands.hpp"

#include <gtest/gtest.h>

#include "ctest/kernels/operator_arrays.hpp"
#include "execution/error.hpp"
#include "kernels/conv1d/halo.hpp"
#include "kernels/elementwise/elementwise.hpp"
#include "kernels/microbatch/take_row.hpp"
#include "kernels/moe/capacity.hpp"
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

/// An array with one more row than the operator says.
Array longer(const Spec& spec) {
  std::vector<std::int64_t> shape = spec.shape;
  ++shape.front();
  return {spec.dtype, shape, spec.name};
}
void lengthen(const Spec& spec, Array& array) { array = longer(spec); }
void lengthen(const Spec& spec, ColumnsOf<Array>& columns) {
  columns = {.whole = longer(spec), .count = spec.shape[1]};
}

/// Each operand in turn has a row too many.
template <Operator Op>
void expect_other_shapes_are_refused(const Op& op) {
  Random random;
  const Arrays<Op> right = make_arrays(op, random);
  int operands = 0;
  op.each([&](const Spec&, const auto&) { ++operands; }, right);
  for (int wrong = 0; wrong < operands; ++wrong) {
    Arrays<Op> arrays = right;
    int at = 0;
    op.each(
        [&](const Spec& spec, auto& one) {
          if (at++ == wrong) lengthen(spec, one);
        },
        arrays);
    EXPECT_THROW(run(op, arrays), execution::Error) << Op::kName << ", operand " << wrong;
  }
}

TEST(operands, of_another_shape_are_refused_by_every_operator_of_its_own_run) {
  const execution::BufferInfo four{"", Dtype::fp32, {4}};
  expect_other_shapes_are_refused(Conv1dHaloRows{4, 2, 8, 4, Dtype::fp32});
  expect_other_shapes_are_refused(Conv1dHaloAdd{4, 2, 8, 4, Dtype::fp32});
  expect_other_shapes_are_refused(TakeRow{3, 4});
  expect_other_shapes_are_refused(AdvanceIndex{});
  expect_other_shapes_are_refused(LimitOffsets{4, 8});
  expect_other_shapes_are_refused(LimitSlots{2});
  expect_other_shapes_are_refused(TellRows{2, 0, {8, 8}, Dtype::fp32});
  expect_other_shapes_are_refused(JudgeRows{2, Dtype::fp32});
  expect_other_shapes_are_refused(PairValues{2, 2, Dtype::fp32});
  expect_other_shapes_are_refused(Add{four});
  expect_other_shapes_are_refused(Scale{four, 2});
  expect_other_shapes_are_refused(Cast{four, Dtype::bf16});
  expect_other_shapes_are_refused(PackColumns{3, 2, Dtype::fp32});
}

}  // namespace
}  // namespace stowage::kernels::test
