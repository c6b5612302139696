#include "kernels/embedding/embedding.hpp"
#include "kernels/cost.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>
#include <set>

#include "drivers/bench_kernels/bound.hpp"
#include "drivers/bench_kernels/entries.hpp"

namespace stowage::drivers::bench {
namespace {

using execution::Dtype;

constexpr std::int64_t kCheckedRows = 256;

/// Rows of a table (V, D) for n tokens, or the gradient of the table. Tokens are uniform, or with
/// zipf 1 as common as words: token v with a probability like 1 / (v + 1).
class EmbeddingCase final : public Case {
 public:
  EmbeddingCase(Gpu& gpu, const Shape& shape, std::int64_t seed, bool backward)
      : backward_(backward),
        n_(shape["n"]),
        v_(shape["V"]),
        d_(shape["D"]),
        room_bytes_(static_cast<std::int64_t>(kernels::embedding_backward_workspace_bytes(n_, v_))),
        tokens_(gpu, "tokens", Role::input, Dtype::int32, {n_}),
        table_(gpu, "table", backward ? Role::output : Role::input,
               backward ? Dtype::fp32 : Dtype::bf16, {v_, d_}),
        x_(gpu, "x", backward ? Role::input : Role::output, Dtype::bf16, {n_, d_}),
        room_(gpu, "workspace", Role::workspace, Dtype::uint8, {room_bytes_}),
        bound_{Bound(tokens_), Bound(table_), Bound(x_), Bound(room_)} {
    operands = {&tokens_, &table_, &x_, &room_};
    (backward ? x_ : table_).fill_normal(seed, 0, 1);
    std::mt19937_64 engine(static_cast<std::uint64_t>(seed));
    std::uniform_real_distribution<double> uniform(0, 1);
    for (std::int64_t t = 0; t < n_; ++t) {
      const auto size = static_cast<double>(v_);
      const double drawn =
          shape["zipf"] != 0 ? std::pow(size + 1, uniform(engine)) - 1 : uniform(engine) * size;
      token_.push_back(static_cast<std::int32_t>(std::min(drawn, size - 1)));
    }
    tokens_.upload(token_.data());
  }
  /// A row of the table that many tokens name is read from memory once.
  execution::Cost cost() const override {
    if (backward_) return kernels::embedding_backward_cost(n_, v_, d_, Dtype::bf16, false);
    const std::set<std::int32_t> distinct(token_.begin(), token_.end());
    execution::Cost cost = kernels::embedding_forward_cost(n_, d_, Dtype::bf16);
    cost.bytes -=
        kernels::bytes((n_ - static_cast<std::int64_t>(distinct.size())) * d_, Dtype::bf16);
    return cost;
  }
  void enqueue(const std::string&, execution::Queue& queue) override {
    const auto& [tokens, table, x, room] = bound_;
    if (backward_)
      kernels::embedding_backward(queue, tokens, x, table, room, false);
    else
      kernels::embedding_forward(queue, tokens, table, x);
  }
  // The forward copies. In the backward the first rows, of which zipf's are the longest sums.
  std::vector<Agreement> check(const std::string&) override {
    std::vector<double> expected;
    if (!backward_) {
      for (std::int64_t t = 0; t < kCheckedRows; ++t) {
        const std::vector<double> row = table_.rows(token_[t], 1);
        expected.insert(expected.end(), row.begin(), row.end());
      }
      return {{"x", relative_error(x_.rows(0, kCheckedRows), expected), 0, false,
               some_of(kCheckedRows, n_, "rows")}};
    }
    const std::vector<double> dx = x_.values();
    const std::int64_t rows = std::min(v_, kCheckedRows);
    expected.resize(static_cast<std::size_t>(rows * d_));
    for (std::int64_t t = 0; t < n_; ++t)
      for (std::int64_t j = 0; j < d_ && token_[t] < rows; ++j)
        expected[token_[t] * d_ + j] += dx[t * d_ + j];
    return {{"dtable", relative_error(table_.rows(0, rows), expected),
             4 * execution::epsilon(Dtype::fp32) * std::sqrt(static_cast<double>(n_)), false,
             some_of(rows, v_, "rows")}};
  }

 private:
  bool backward_;
  std::int64_t n_, v_, d_, room_bytes_;
  Operand tokens_, table_, x_, room_;
  std::array<Bound, 4> bound_;
  std::vector<std::int32_t> token_;
};

Entry entry(const char* name, const char* help, bool backward) {
  return {.name = name,
          .help = help,
          .shapes = {Shape{{"n", 16384}, {"V", 65536}, {"D", 2048}, {"zipf", 0}},
                     Shape{{"n", 16384}, {"V", 65536}, {"D", 2048}, {"zipf", 1}}},
          .implementations = {{"ours", "", ""}},
          .make = [=](Gpu& gpu, const Shape& shape, std::int64_t seed) -> std::unique_ptr<Case> {
            return std::make_unique<EmbeddingCase>(gpu, shape, seed, backward);
          }};
}

}  // namespace

std::vector<Entry> embedding_entries() {
  return {entry("embedding_forward", "x (n, D) = rows of a table (V, D), bf16", false),
          entry("embedding_backward", "dtable (V, D) fp32, every row stored", true)};
}

}  // namespace stowage::drivers::bench
