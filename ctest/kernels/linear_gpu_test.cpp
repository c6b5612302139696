// Dense products on a GPU against the host reference in fp64 on inputs as rounded to storage.

#include "ctest/kernels/operator_check.hpp"
#include "execution/error.hpp"
#include "kernels/linear/dense_product.hpp"
#include "kernels/linear/linear.hpp"
#include "kernels/linear/product_table.hpp"

namespace stowage::kernels::test {
namespace {

struct Sizes {
  std::int64_t n, m, k;
};

constexpr Sizes kSizes[] = {{1, 1, 1},     {1, 7, 3},       {5, 3, 9},       {37, 19, 23},
                            {3, 515, 9},   {131, 21, 1027}, {0, 8, 16},      {16, 0, 8},
                            {300, 32, 8},  {1000, 64, 256}, {256, 512, 384}, {1, 5, 16},
                            {77, 32, 136}, {700, 128, 264}, {2000, 100, 72}};

template <class Op>
void check(Random& random, const Op& op, int replays) {
  const Arrays<Op> arrays = make_arrays(op, random);
  // Added to values of one sign and larger than most sums: nothing cancels.
  op.each(
      [&](const Spec& spec, const Array& one) {
        if (spec.access == execution::Access::update)
          set(one, random.uniform(static_cast<std::int64_t>(one.size()), 20, 30));
      },
      arrays);
  const auto within = [&](std::string_view output) {
    const auto of = [](Dtype dtype, std::int64_t terms) {
      return tolerance(dtype, static_cast<double>(terms));
    };
    return output == "y"    ? of(op.result, op.inputs)
           : output == "dx" ? of(op.storage, op.outputs)
                            : of(execution::accumulation(op.storage), op.rows);
  };
  check_on_gpu(op, arrays, within, replays);
}

void check(Random& random, const Sizes& s, Dtype storage, Dtype result, int replays = 2) {
  SCOPED_TRACE(testing::Message() << "n " << s.n << " m " << s.m << " k " << s.k << " "
                                  << execution::name(storage) << " " << execution::name(result));
  check(random, LinearForward{s.n, s.m, s.k, storage, result}, replays);
  for (const bool more : {false, true}) {
    const LinearBackward both{s.n, s.m, s.k, storage, result, more, !more};
    check(random, both, replays);
    check(random, both.input(), replays);
    check(random, both.weight(), replays);
  }
}

TEST(linear_gpu, products_match_fp64) {
  STOWAGE_NEED_GPU();
  Random random;
  for (const Sizes& s : kSizes) {
    check(random, s, Dtype::fp32, Dtype::fp32);
    check(random, s, Dtype::bf16, Dtype::bf16);
  }
}

TEST(linear_gpu, products_with_fp32_results_match_fp64) {
  STOWAGE_NEED_GPU();
  Random random;
  for (const Sizes& s : kSizes) check(random, s, Dtype::bf16, Dtype::fp32);
}

// Both gradients at once, so wide that the stages of x and the slots of dx go round more than once:
// for each number of experts that is compiled; with a last slice that is not whole; and with more
// slices than multiprocessors.
TEST(linear_gpu, wide_rows_of_both_gradients) {
  STOWAGE_NEED_GPU();
  Random random;
  for (const Sizes& s :
       {Sizes{1500, 32, 4096}, Sizes{1100, 64, 8192}, Sizes{1300, 128, 8200}, Sizes{200, 8, 17000}})
    check(random, s, Dtype::bf16, Dtype::fp32);
}

// Both gradients at once take rows in chunks, as many as the scratch memory has room for.
TEST(linear_gpu, more_rows_than_a_chunk) {
  STOWAGE_NEED_GPU();
  Random random;
  check(random, {23000, 128, 16}, Dtype::bf16, Dtype::fp32);
}

// Three gradients of the weight do not fit into the scratch memory: Nemotron 3 Super's router.
TEST(linear_gpu, a_router_of_many_wide_experts) {
  STOWAGE_NEED_GPU();
  Random random;
  check(random, {300, 512, 4096}, Dtype::bf16, Dtype::fp32);
}

// Split sums: a long inner dimension and few tiles.
TEST(linear_gpu, repeats_to_the_bit) {
  STOWAGE_NEED_GPU();
  Random random;
  check(random, {9000, 32, 128}, Dtype::bf16, Dtype::bf16, 100);
  check(random, {9000, 32, 128}, Dtype::bf16, Dtype::fp32, 100);
  check(random, {3000, 128, 264}, Dtype::bf16, Dtype::fp32, 100);
  check(random, {1500, 32, 4096}, Dtype::bf16, Dtype::fp32, 100);
}

TEST(linear_gpu, names_its_algorithms) {
  STOWAGE_NEED_GPU();
  const ProductShape shape =
      dense_shape(136, 264, 72, Transpose::no, Transpose::yes, Dtype::bf16, Dtype::bf16, false);
  const Array a(Dtype::bf16, {136, 72}, Values(136 * 72, 0.5));
  const Array b(Dtype::bf16, {264, 72}, Values(264 * 72, 0.25)), c(Dtype::bf16, {136, 264});
  on_gpu(
      [&](Queue& q, auto& at) {
        dense_product(shape, at(a).data[0], at(b).data[0], at(c).data[0],
                      static_cast<cudaStream_t>(q.stream()));
      },
      {c});
  bool found = false;
  for (const ProductRecord& record : products_used()) {
    found |= record.shape == shape;
    EXPECT_EQ(record.algorithm.rfind("algo ", 0), 0U) << record.algorithm;
  }
  EXPECT_TRUE(found);
  EXPECT_GE(product_workspaces_bytes(), kProductWorkspaceBytes);
  EXPECT_EQ(text(shape), "136x264x72 NT bf16>bf16");
}

// Rows of this GPU and library: each is accepted, and is what a product of its shape runs by.
TEST(linear_gpu, rows_of_the_table_are_accepted) {
  STOWAGE_NEED_GPU();
  cudaDeviceProp device{};
  ASSERT_EQ(cudaGetDeviceProperties(&device, 0), cudaSuccess);
  int rows = 0;
  for (const ProductChoice& row : product_table()) {
    if (row.device != device.name || row.library != product_library_number()) continue;
    EXPECT_NO_THROW(ProductPlan(row.shape, row.algorithm)) << text(row.shape);
    EXPECT_TRUE(tabled_algorithm(row.device, row.library, row.shape).has_value());
    ++rows;
  }
  if (rows == 0) GTEST_SKIP() << "no rows for " << device.name << ", " << product_library();
}

TEST(linear_gpu, a_row_of_the_table_is_written_as_code) {
  ProductShape shape =
      dense_shape(3, 4, 5, Transpose::yes, Transpose::no, Dtype::bf16, Dtype::fp32, true);
  shape.a_stride = 8;
  EXPECT_EQ(table_row({"GPU", 130100, shape, {0x42, 0, 7}}),
            "{\"GPU\", 130100, {3, 4, 5, 8, 4, 4, T, N, bf16, bf16, fp32, true, false}, "
            "{0x42, 0x0, 0x7}},");
  EXPECT_FALSE(tabled_algorithm("GPU", 130100, shape).has_value());
}

// Parts of tensors begin where the rows before them end.
TEST(linear_gpu, operands_may_lie_anywhere) {
  STOWAGE_NEED_GPU();
  const DeviceArray x(Array(Dtype::bf16, {64}, Values(64, 1.0)));
  const ProductShape shape =
      dense_shape(2, 2, 2, Transpose::no, Transpose::no, Dtype::bf16, Dtype::bf16, false);
  on_gpu_queue([&](Queue& q) {
    auto* a = x.view().as<std::uint16_t>();
    dense_product(shape, a + 1, a + 16, a + 32, static_cast<cudaStream_t>(q.stream()));
  });
  const Values after = x.host().values();
  for (std::size_t i = 31; i < 37; ++i) EXPECT_EQ(after[i], i > 31 && i < 36 ? 2.0 : 1.0) << i;
}

}  // namespace
}  // namespace stowage::kernels::test
