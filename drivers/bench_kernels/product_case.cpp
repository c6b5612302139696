#include "drivers/bench_kernels/product_case.hpp"

#include <algorithm>
#include <cmath>

#include "drivers/bench_kernels/product_search.hpp"
#include "kernels/linear/product_table.hpp"

namespace stowage::drivers::bench {
namespace {

using execution::Dtype;
using kernels::ProductShape;
using kernels::Transpose;

constexpr int kCandidates = 64;
constexpr std::int64_t kComparedRows = 8, kComparedColumns = 32;
constexpr std::int64_t kComparedElements = std::int64_t{1} << 20;
constexpr int kRepeats = 8;

// A factor as it is stored: rows and the elements between them.
std::vector<std::int64_t> stored(Transpose transpose, std::int64_t rows, std::int64_t columns,
                                 std::int64_t stride) {
  return {transpose == Transpose::yes ? columns : rows, stride};
}

// A range of rows or columns of c.
struct Range {
  std::int64_t first, count;
};

// The beginning, the middle and the end of an extent.
std::vector<Range> compared_ranges(std::int64_t extent, std::int64_t count) {
  count = std::min(extent, count);
  return {{0, count}, {(extent - count) / 2, count}, {extent - count, count}};
}

// Columns [first, first + count) of all rows of op(matrix) transposed: (k, count).
std::vector<double> slice(const Operand& matrix, bool along_rows, const Range& range,
                          std::int64_t k) {
  if (along_rows) return matrix.block(0, k, range.first, range.count);
  const std::vector<double> rows = matrix.block(range.first, range.count, 0, k);
  std::vector<double> turned(rows.size());
  const auto count = static_cast<std::size_t>(range.count), terms = static_cast<std::size_t>(k);
  for (std::size_t i = 0; i < count; ++i)
    for (std::size_t l = 0; l < terms; ++l) turned[l * count + i] = rows[i * terms + l];
  return turned;
}

}  // namespace

ProductCase::ProductCase(run::Gpu& gpu, const ProductShape& product, std::int64_t seed, Ours ours)
    : product_(product),
      ours_(std::move(ours)),
      a_(gpu, "a", Role::input, product.a,
         stored(product.transpose_a, product.m, product.k, product.a_stride)),
      b_(gpu, "b", Role::input, product.b,
         stored(product.transpose_b, product.k, product.n, product.b_stride)),
      c_(gpu, "c", product.accumulate ? Role::update : Role::output, product.c,
         {product.m, product.c_stride}),
      bound_{Bound(a_), Bound(b_), Bound(c_)},
      workspace_(gpu.device_memory(kernels::kProductWorkspaceBytes)),
      plan_(product_, kCandidates) {
  operands = {&a_, &b_, &c_};
  if (execution::size_bytes(product.a) == 1) {
    const float one = 1;
    one_.emplace(gpu, "scale", Role::input, Dtype::fp32, std::vector<std::int64_t>{1});
    one_->upload(&one);
    scales_ = {one_->as<float>(), one_->as<float>()};
  }
  a_.fill_normal(seed, 0, 1);
  b_.fill_normal(seed, 0, 0.02);
  c_.fill_normal(seed, 0, 1);
  kernels::prepare_products(static_cast<cudaStream_t>(gpu.queue().stream()));
  prepare_reference();
  search(gpu);
  row_ = kernels::table_row(
      {gpu.device().name, kernels::product_library_number(), product_, plan_.algorithm(fastest_)});
}

void ProductCase::search(run::Gpu& gpu) {
  run::Timer timer(gpu);
  const auto run = [this](execution::Queue& queue, int candidate) {
    plan_.run(candidate, a_.data(), b_.data(), c_.data(), workspace_->data(),
              static_cast<cudaStream_t>(queue.stream()), scales_);
  };
  const auto result = [&](int candidate) {
    c_.refill();
    run(gpu.queue(), candidate);
    return c_.rows(
        0, std::min(product_.m, std::max<std::int64_t>(1, kComparedElements / product_.c_stride)));
  };
  fastest_ = fastest_candidate(timer, plan_.candidates(), run, [&](int candidate) {
    const std::vector<double> first = result(candidate);
    if (!(relative_error(compared(), reference_) <= tolerance())) return false;
    for (int i = 1; i < kRepeats; ++i)
      if (result(candidate) != first) return false;
    return true;
  });
}

execution::Cost ProductCase::cost() const {
  const double passes = product_.accumulate ? 2 : 1;
  const auto bytes = [](std::int64_t rows, std::int64_t columns, Dtype dtype) {
    return static_cast<double>(rows * columns) * static_cast<double>(execution::size_bytes(dtype));
  };
  return {2.0 * static_cast<double>(product_.m) * static_cast<double>(product_.n) *
              static_cast<double>(product_.k),
          bytes(product_.m, product_.k, product_.a) + bytes(product_.k, product_.n, product_.b) +
              passes * bytes(product_.m, product_.n, product_.c)};
}

void ProductCase::enqueue(const std::string& implementation, execution::Queue& queue) {
  auto* const stream = static_cast<cudaStream_t>(queue.stream());
  if (implementation == "ours" && ours_)
    ours_(queue, bound_[0], bound_[1], bound_[2]);
  else if (implementation == "ours")
    kernels::dense_product(product_, a_.data(), b_.data(), c_.data(), stream, scales_);
  else
    plan_.run(implementation == "cublas" ? 0 : fastest_, a_.data(), b_.data(), c_.data(),
              workspace_->data(), stream, scales_);
}

std::vector<double> ProductCase::compared() const {
  std::vector<double> values;
  for (const Range& rows : compared_ranges(product_.m, kComparedRows))
    for (const Range& columns : compared_ranges(product_.n, kComparedColumns)) {
      const auto block = c_.block(rows.first, rows.count, columns.first, columns.count);
      values.insert(values.end(), block.begin(), block.end());
    }
  return values;
}

void ProductCase::prepare_reference() {
  reference_ = compared();
  if (!product_.accumulate) reference_.assign(reference_.size(), 0.0);
  double* to = reference_.data();
  for (const Range& rows : compared_ranges(product_.m, kComparedRows)) {
    const auto a = slice(a_, product_.transpose_a == Transpose::yes, rows, product_.k);
    for (const Range& columns : compared_ranges(product_.n, kComparedColumns)) {
      const auto b = slice(b_, product_.transpose_b == Transpose::no, columns, product_.k);
      const auto m = static_cast<std::size_t>(rows.count);
      const auto n = static_cast<std::size_t>(columns.count);
      for (std::size_t l = 0; l < static_cast<std::size_t>(product_.k); ++l)
        for (std::size_t i = 0; i < m; ++i)
          for (std::size_t j = 0; j < n; ++j) to[i * n + j] += a[l * m + i] * b[l * n + j];
      to += m * n;
    }
  }
}

// Sums of K terms in fp32, rounded once to the result's dtype. Hopper adds 8-bit products to a sum
// of 14 bits, 32 of them at a time, and cuts off the rest.
double ProductCase::tolerance() const {
  if (execution::size_bytes(product_.a) == 1)
    return execution::epsilon(product_.c) +
           0x1p-13 * std::sqrt(static_cast<double>(product_.fast ? product_.k : 128) / 32);
  return execution::epsilon(product_.c) +
         4 * execution::epsilon(Dtype::fp32) * std::sqrt(static_cast<double>(product_.k));
}

std::vector<Agreement> ProductCase::check(const std::string&) {
  return {
      {"c", relative_error(compared(), reference_), tolerance(), false,
       some_of(static_cast<std::int64_t>(reference_.size()), product_.m * product_.n, "elements")}};
}

std::vector<Implementation> product_implementations() {
  const std::string version = kernels::product_library();
  return {{"ours", version, "", "by the table of algorithms"},
          {"cublas", version, "", "first of its heuristics"},
          {"cublas_search", version, "", "fastest of its candidates"}};
}

}  // namespace stowage::drivers::bench
