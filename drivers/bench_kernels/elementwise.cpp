#include "kernels/elementwise/elementwise.hpp"

#include "drivers/bench_kernels/entries.hpp"
#include "drivers/bench_kernels/operator_case.hpp"

namespace stowage::drivers::bench {
namespace {

using execution::Dtype;

constexpr std::int64_t kCheckedRows = 64;

execution::BufferInfo matrix(Dtype dtype, const Shape& shape) {
  return {"", dtype, {shape["n"], shape["D"]}};
}

/// Of rows in bf16.
std::vector<Agreement> agreement(const Operand& out, const std::vector<double>& expected) {
  return {{"out", relative_error(out.rows(0, kCheckedRows), expected),
           execution::epsilon(Dtype::bf16), false,
           some_of(kCheckedRows, out.shape().front(), "rows")}};
}

class AddCase final : public OperatorCase<kernels::Add> {
 public:
  AddCase(run::Gpu& gpu, const Shape& shape, std::int64_t seed)
      : OperatorCase(gpu, {matrix(Dtype::bf16, shape)}, seed) {}
  std::vector<Agreement> check(const std::string&) override {
    std::vector<double> expected = o_.a->rows(0, kCheckedRows);
    const std::vector<double> b = o_.b->rows(0, kCheckedRows);
    for (std::size_t i = 0; i < b.size(); ++i) expected[i] += b[i];
    return agreement(*o_.out, expected);
  }
};

class CastCase final : public OperatorCase<kernels::Cast> {
 public:
  CastCase(run::Gpu& gpu, const Shape& shape, std::int64_t seed)
      : OperatorCase(gpu, {matrix(Dtype::fp32, shape), Dtype::bf16}, seed) {}
  std::vector<Agreement> check(const std::string&) override {
    return agreement(*o_.y, o_.x->rows(0, kCheckedRows));
  }
};

}  // namespace

std::vector<Entry> elementwise_entries() {
  const std::vector<Shape> shapes = {Shape{{"n", 16384}, {"D", 8192}},
                                     Shape{{"n", 16384}, {"D", 2048}}};
  return {operator_entry<AddCase>("add", "out (n, D) = a + b, bf16", shapes),
          operator_entry<CastCase>("cast", "out (n, D) bf16 = a fp32", shapes)};
}

}  // namespace stowage::drivers::bench
