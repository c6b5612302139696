#include <cuda_runtime_api.h>
#include <fmt/core.h>

#include "drivers/bench_kernels/entries.hpp"
#include "run/measure/random.hpp"

namespace stowage::drivers::bench {
namespace {

using execution::Dtype;

std::string runtime() {
  return fmt::format("CUDA {}.{}", CUDART_VERSION / 1000, CUDART_VERSION % 1000 / 10);
}

/// y = x by a kernel ("ours") and by the runtime's own copy ("cuda").
class CopyCase final : public Case {
 public:
  CopyCase(run::Gpu& gpu, const Shape& shape, std::int64_t seed)
      : x_(gpu, "x", Role::input, Dtype::bf16, {shape["n"], shape["D"]}),
        y_(gpu, "y", Role::output, Dtype::bf16, {shape["n"], shape["D"]}) {
    operands = {&x_, &y_};
    x_.fill_normal(seed, 0, 1);
  }

  execution::Cost cost() const override { return {0, 2.0 * static_cast<double>(x_.bytes())}; }

  void enqueue(const std::string& implementation, execution::Queue& queue) override {
    if (implementation == "cuda")
      queue.copy(y_.data(), x_.data(), x_.bytes());
    else
      execution::parallel_for(queue, static_cast<std::int64_t>(x_.bytes() / sizeof(run::Block16)),
                              run::CopyBlocks{x_.as<run::Block16>(), y_.as<run::Block16>()});
  }

  std::vector<Agreement> check(const std::string&) override {
    return {{"y", x_.download() == y_.download() ? 0.0 : 1.0, 0, false, "all bytes"}};
  }

 private:
  Operand x_, y_;
};

}  // namespace

Entry copy_entry() {
  return {
      .name = "copy",
      .help = "y (n, D) = x (n, D) bf16, D a multiple of 8",
      .shapes = {Shape{{"n", 65536}, {"D", 4096}}, Shape{{"n", 16384}, {"D", 2048}}},
      .implementations = {{"ours", "", ""}, {"cuda", runtime(), "", "cudaMemcpyAsync"}},
      .make = [](run::Gpu& gpu, const Shape& shape, std::int64_t seed) -> std::unique_ptr<Case> {
        return std::make_unique<CopyCase>(gpu, shape, seed);
      }};
}

}  // namespace stowage::drivers::bench
