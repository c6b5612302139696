#include "kernels/rope/rope.hpp"

#include "drivers/bench_kernels/bound.hpp"
#include "drivers/bench_kernels/entries.hpp"

namespace stowage::drivers::bench {
namespace {

using execution::Dtype;

constexpr std::int64_t kCheckedRows = 64;
constexpr double kTheta = 1e4;

/// Queries and keys of B sequences of T tokens, rotated; values copied.
class RopeCase final : public Case {
 public:
  RopeCase(Gpu& gpu, const Shape& shape, std::int64_t seed)
      : n_(shape["B"] * shape["T"]),
        heads_(shape["H"]),
        kv_heads_(shape["K"]),
        dim_(shape["P"]),
        in_(gpu, "in", Role::input, Dtype::bf16, {n_, (heads_ + 2 * kv_heads_) * dim_}),
        starts_(gpu, "cu_seqlens", Role::input, Dtype::int32, {shape["B"] + 1}),
        documents_(gpu, "seq_idx", Role::input, Dtype::int32, {n_}),
        out_(gpu, "out", Role::output, Dtype::bf16, in_.shape()),
        bound_{Bound(in_), Bound(starts_), Bound(documents_), Bound(out_)} {
    operands = {&in_, &starts_, &documents_, &out_};
    in_.fill_normal(seed, 0, 1);
    for (std::int64_t b = 0; b <= shape["B"]; ++b)
      start_.push_back(static_cast<std::int32_t>(b * shape["T"]));
    for (std::int64_t t = 0; t < n_; ++t)
      document_.push_back(static_cast<std::int32_t>(t / shape["T"]));
    starts_.upload(start_.data());
    documents_.upload(document_.data());
  }
  execution::Cost cost() const override {
    return kernels::rope_cost(n_, heads_, kv_heads_, dim_, Dtype::bf16);
  }
  void enqueue(const std::string&, execution::Queue& queue) override {
    const auto& [in, starts, documents, out] = bound_;
    kernels::rope_forward(queue, in, starts, documents, out, heads_, kv_heads_, dim_, {kTheta});
  }
  std::vector<Agreement> check(const std::string&) override {
    const std::vector<double> in = in_.rows(0, kCheckedRows);
    std::vector<double> out(in.size());
    on_host([&] {
      kernels::rope_forward_ref<double>(in.data(), start_.data(), document_.data(), out.data(),
                                        kCheckedRows, heads_, kv_heads_, dim_, {kTheta});
    });
    return {{"out", relative_error(out_.rows(0, kCheckedRows), out),
             execution::epsilon(Dtype::bf16), false, some_of(kCheckedRows, n_, "rows")}};
  }

 private:
  std::int64_t n_, heads_, kv_heads_, dim_;
  Operand in_, starts_, documents_, out_;
  std::array<Bound, 4> bound_;
  std::vector<std::int32_t> start_, document_;
};

}  // namespace

std::vector<Entry> rope_entries() {
  return {{.name = "rope_forward",
           .help = "rotary positions on queries and keys of (B T, (H + 2 K) P), bf16",
           .shapes = {Shape{{"B", 2}, {"T", 8192}, {"H", 16}, {"K", 4}, {"P", 128}}},
           .implementations = {{"ours", "", ""}},
           .make = [](Gpu& gpu, const Shape& shape, std::int64_t seed) -> std::unique_ptr<Case> {
             return std::make_unique<RopeCase>(gpu, shape, seed);
           }}};
}

}  // namespace stowage::drivers::bench
