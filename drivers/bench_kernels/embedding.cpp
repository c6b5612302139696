#include "kernels/embedding/embedding.hpp"

#include <algorithm>
#include <cmath>
#include <random>
#include <set>

#include "drivers/bench_kernels/entries.hpp"
#include "drivers/bench_kernels/operator_case.hpp"
#include "kernels/cost.hpp"

namespace stowage::drivers::bench {
namespace {

using execution::Dtype;

constexpr std::int64_t kCheckedRows = 256;

/// Tokens are uniform, or with zipf 1 as common as words: token v with a probability like
/// 1 / (v + 1).
std::vector<std::int32_t> draw_tokens(const Shape& shape, std::int64_t seed) {
  std::mt19937_64 engine(static_cast<std::uint64_t>(seed));
  std::uniform_real_distribution<double> uniform(0, 1);
  const auto size = static_cast<double>(shape["V"]);
  std::vector<std::int32_t> tokens;
  for (std::int64_t t = 0; t < shape["n"]; ++t) {
    const double drawn =
        shape["zipf"] != 0 ? std::pow(size + 1, uniform(engine)) - 1 : uniform(engine) * size;
    tokens.push_back(static_cast<std::int32_t>(std::min(drawn, size - 1)));
  }
  return tokens;
}

class Forward final : public OperatorCase<kernels::EmbeddingForward> {
 public:
  Forward(run::Gpu& gpu, const Shape& shape, std::int64_t seed)
      : OperatorCase(gpu,
                     {.tokens = shape["n"],
                      .vocabulary = shape["V"],
                      .width = shape["D"],
                      .storage = Dtype::bf16},
                     seed),
        token_(draw_tokens(shape, seed)) {
    o_.token->upload(token_.data());
  }
  /// A row of the table that many tokens name is read from memory once.
  execution::Cost cost() const override {
    const std::set<std::int32_t> distinct(token_.begin(), token_.end());
    const std::int64_t again = op_.tokens - static_cast<std::int64_t>(distinct.size());
    execution::Cost cost = op_.cost();
    cost.bytes -= kernels::bytes(again * op_.width, op_.storage);
    return cost;
  }
  // It copies.
  std::vector<Agreement> check(const std::string&) override {
    std::vector<double> expected;
    for (std::int64_t t = 0; t < kCheckedRows; ++t) {
      const std::vector<double> row = o_.table->rows(token_[t], 1);
      expected.insert(expected.end(), row.begin(), row.end());
    }
    return {{"x", relative_error(o_.x->rows(0, kCheckedRows), expected), 0, false,
             some_of(kCheckedRows, op_.tokens, "rows")}};
  }

 private:
  std::vector<std::int32_t> token_;
};

class Backward final : public OperatorCase<kernels::EmbeddingBackward> {
 public:
  Backward(run::Gpu& gpu, const Shape& shape, std::int64_t seed)
      : OperatorCase(gpu,
                     {.tokens = shape["n"],
                      .vocabulary = shape["V"],
                      .width = shape["D"],
                      .storage = Dtype::bf16,
                      .accumulate = false},
                     seed),
        token_(draw_tokens(shape, seed)) {
    o_.token->upload(token_.data());
  }
  // The first rows, of which zipf's are the longest sums.
  std::vector<Agreement> check(const std::string&) override {
    const std::vector<double> dx = o_.dx->values();
    const std::int64_t rows = std::min(op_.vocabulary, kCheckedRows);
    std::vector<double> expected(static_cast<std::size_t>(rows * op_.width));
    for (std::int64_t t = 0; t < op_.tokens; ++t)
      for (std::int64_t j = 0; j < op_.width && token_[t] < rows; ++j)
        expected[token_[t] * op_.width + j] += dx[t * op_.width + j];
    return {{"dtable", relative_error(o_.dtable->rows(0, rows), expected),
             4 * execution::epsilon(Dtype::fp32) * std::sqrt(static_cast<double>(op_.tokens)),
             false, some_of(rows, op_.vocabulary, "rows")}};
  }

 private:
  std::vector<std::int32_t> token_;
};

}  // namespace

std::vector<Entry> embedding_entries() {
  const std::vector<Shape> shapes = {Shape{{"n", 16384}, {"V", 65536}, {"D", 2048}, {"zipf", 0}},
                                     Shape{{"n", 16384}, {"V", 65536}, {"D", 2048}, {"zipf", 1}}};
  return {operator_entry<Forward>("embedding_forward", "x (n, D) = rows of a table (V, D), bf16",
                                  shapes),
          operator_entry<Backward>("embedding_backward", "dtable (V, D) fp32, every row stored",
                                   shapes)};
}

}  // namespace stowage::drivers::bench
