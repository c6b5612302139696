// Dense products on a GPU against the host reference in fp64 on inputs as rounded to storage.

#include "ctest/kernels/device_check.hpp"
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

class Products {
 public:
  // `result` is the dtype of y and dy; on the host in fp64 it is fp64.
  Products(Dtype storage, Dtype result, const Sizes& s, const Values& x, const Values& w,
           const Values& dy, const Values& old_dx, const Values& old_dw)
      : s_(s),
        sums_(execution::accumulation(storage)),
        x_(storage, {s.n, s.k}, x),
        w_(storage, {s.m, s.k}, w),
        y_(result, {s.n, s.m}),
        dy_(result, {s.n, s.m}, dy),
        dx_(storage, {s.n, s.k}),
        more_dx_(storage, {s.n, s.k}, old_dx),
        dw_(sums_, {s.m, s.k}),
        more_dw_(sums_, {s.m, s.k}, old_dw),
        both_dx_(storage, {s.n, s.k}),
        more_both_dx_(storage, {s.n, s.k}, old_dx),
        both_dw_(sums_, {s.m, s.k}),
        more_both_dw_(sums_, {s.m, s.k}, old_dw) {}

  template <class At>
  void enqueue(Queue& q, At& at) const {
    linear_forward(q, at(x_), at(w_), at(y_));
    linear_backward_input(q, at(dy_), at(w_), at(dx_), false);
    linear_backward_input(q, at(dy_), at(w_), at(more_dx_), true);
    linear_backward_weight(q, at(dy_), at(x_), at(dw_), false);
    linear_backward_weight(q, at(dy_), at(x_), at(more_dw_), true);
    linear_backward(q, at(dy_), at(x_), at(w_), at(both_dx_), false, at(more_both_dw_), true);
    linear_backward(q, at(dy_), at(x_), at(w_), at(more_both_dx_), true, at(both_dw_), false);
  }
  std::vector<Output> outputs() const {
    const auto terms = [](std::int64_t count) { return static_cast<double>(count); };
    const double input = tolerance(x_.dtype(), terms(s_.m));
    const double weight = tolerance(sums_, terms(s_.n));
    return {{"y", y_, tolerance(y_.dtype(), terms(s_.k))},
            {"dx", dx_, input},
            {"dx +=", more_dx_, input},
            {"dw", dw_, weight},
            {"dw +=", more_dw_, weight},
            {"dx of both", both_dx_, input},
            {"dx += of both", more_both_dx_, input},
            {"dw of both", both_dw_, weight},
            {"dw += of both", more_both_dw_, weight}};
  }

 private:
  Sizes s_;
  Dtype sums_;
  Array x_, w_, y_, dy_, dx_, more_dx_, dw_, more_dw_;
  Array both_dx_, more_both_dx_, both_dw_, more_both_dw_;
};

void check(Random& random, const Sizes& s, Dtype storage, Dtype result, int replays = 2) {
  SCOPED_TRACE(testing::Message() << "n " << s.n << " m " << s.m << " k " << s.k << " "
                                  << execution::name(storage) << " " << execution::name(result));
  const Values x = rounded(random.normal(s.n * s.k), storage);
  const Values w = rounded(random.normal(s.m * s.k), storage);
  const Values dy = rounded(random.normal(s.n * s.m), result);
  // Added to values of one sign and larger than most sums: nothing cancels.
  const Values old_dx = rounded(random.uniform(s.n * s.k, 20, 30), storage);
  const Values old_dw = rounded(random.uniform(s.m * s.k, 20, 30), Dtype::fp32);
  check_on_gpu(Products(storage, result, s, x, w, dy, old_dx, old_dw),
               Products(Dtype::fp64, Dtype::fp64, s, x, w, dy, old_dx, old_dw), replays);
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
            "{\"GPU\", 130100, {3, 4, 5, 8, 4, 4, T, N, bf16, fp32, true}, {0x42, 0x0, 0x7}},");
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
