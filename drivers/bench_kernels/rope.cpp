#include "kernels/rope/rope.hpp"

#include "drivers/bench_kernels/entries.hpp"
#include "drivers/bench_kernels/operator_case.hpp"

namespace stowage::drivers::bench {
namespace {

using execution::Dtype;

constexpr std::int64_t kCheckedRows = 64;

/// Queries and keys of B sequences of T tokens, rotated; values copied.
class RopeCase final : public OperatorCase<kernels::Rope> {
 public:
  RopeCase(run::Gpu& gpu, const Shape& shape, std::int64_t seed)
      : OperatorCase(gpu,
                     {.tokens = shape["B"] * shape["T"],
                      .heads = shape["H"],
                      .kv_heads = shape["K"],
                      .head_dim = shape["P"],
                      .rotary_dim = shape["P"],
                      .starts = shape["B"] + 1,
                      .storage = Dtype::bf16,
                      .frequencies = {1e4}},
                     seed) {
    for (std::int64_t b = 0; b < op_.starts; ++b)
      starts_.push_back(static_cast<std::int32_t>(b * shape["T"]));
    for (std::int64_t t = 0; t < op_.tokens; ++t)
      documents_.push_back(static_cast<std::int32_t>(t / shape["T"]));
    o_.cu_seqlens->upload(starts_.data());
    o_.seq_idx->upload(documents_.data());
  }
  std::vector<Agreement> check(const std::string&) override {
    const std::vector<double> in = o_.in->rows(0, kCheckedRows);
    std::vector<double> out(in.size());
    kernels::Rope few = op_;
    few.tokens = kCheckedRows;
    on_host([&] {
      few.reference<double>({.in = in.data(),
                             .cu_seqlens = starts_.data(),
                             .seq_idx = documents_.data(),
                             .positions = {},
                             .out = out.data()});
    });
    return {{"out", relative_error(o_.out->rows(0, kCheckedRows), out),
             execution::epsilon(Dtype::bf16), false, some_of(kCheckedRows, op_.tokens, "rows")}};
  }

 private:
  std::vector<std::int32_t> starts_, documents_;
};

}  // namespace

std::vector<Entry> rope_entries() {
  return {operator_entry<RopeCase>(
      "rope_forward", "rotary positions on queries and keys of (B T, (H + 2 K) P), bf16",
      {Shape{{"B", 2}, {"T", 8192}, {"H", 16}, {"K", 4}, {"P", 128}}})};
}

}  // namespace stowage::drivers::bench
