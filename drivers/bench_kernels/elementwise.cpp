#include "kernels/elementwise/elementwise.hpp"
#include "drivers/bench_kernels/bound.hpp"
#include "drivers/bench_kernels/entries.hpp"

namespace stowage::drivers::bench {
namespace {

using execution::Dtype;

constexpr std::int64_t kCheckedRows = 64;

/// out (n, D) = a + b in bf16, or y = x from fp32 to bf16.
class ElementwiseCase final : public Case {
 public:
  ElementwiseCase(run::Gpu& gpu, const Shape& shape, std::int64_t seed, bool is_cast)
      : is_cast_(is_cast),
        a_(gpu, "a", Role::input, is_cast ? Dtype::fp32 : Dtype::bf16, {shape["n"], shape["D"]}),
        b_(gpu, "b", Role::input, Dtype::bf16, {shape["n"], shape["D"]}),
        out_(gpu, "out", Role::output, Dtype::bf16, {shape["n"], shape["D"]}),
        bound_{Bound(a_), Bound(b_), Bound(out_)} {
    a_.fill_normal(seed, 0, 1);
    b_.fill_normal(seed, 0, 1);
    operands = {&a_, &b_, &out_};
  }

  execution::Cost cost() const override {
    return is_cast_ ? kernels::cast_cost(out_.elements(), Dtype::fp32, Dtype::bf16)
                    : kernels::add_cost(out_.elements(), Dtype::bf16);
  }
  void enqueue(const std::string&, execution::Queue& queue) override {
    if (is_cast_)
      kernels::cast(queue, bound_[0], bound_[2]);
    else
      kernels::add(queue, bound_[0], bound_[1], bound_[2]);
  }
  std::vector<Agreement> check(const std::string&) override {
    std::vector<double> expected = a_.rows(0, kCheckedRows);
    const std::vector<double> b = b_.rows(0, kCheckedRows);
    for (std::size_t i = 0; !is_cast_ && i < b.size(); ++i) expected[i] += b[i];
    return {{"out", relative_error(out_.rows(0, kCheckedRows), expected),
             execution::epsilon(Dtype::bf16), false,
             some_of(kCheckedRows, out_.shape().front(), "rows")}};
  }

 private:
  bool is_cast_;
  Operand a_, b_, out_;
  std::array<Bound, 3> bound_;
};

Entry entry(const char* name, const char* help, bool is_cast) {
  return {
      .name = name,
      .help = help,
      .shapes = {Shape{{"n", 16384}, {"D", 8192}}, Shape{{"n", 16384}, {"D", 2048}}},
      .implementations = {{"ours", "", ""}},
      .make = [=](run::Gpu& gpu, const Shape& shape, std::int64_t seed) -> std::unique_ptr<Case> {
        return std::make_unique<ElementwiseCase>(gpu, shape, seed, is_cast);
      }};
}

}  // namespace

std::vector<Entry> elementwise_entries() {
  return {entry("add", "out (n, D) = a + b, bf16", false),
          entry("cast", "out (n, D) bf16 = a fp32", true)};
}

}  // namespace stowage::drivers::bench
