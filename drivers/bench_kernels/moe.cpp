#include <algorithm>
#include <numeric>
#include <random>

#include "drivers/bench_kernels/entries.hpp"
#include "drivers/bench_kernels/operator_case.hpp"
#include "kernels/moe/permute.hpp"
#include "kernels/moe/router.hpp"

namespace stowage::drivers::bench {
namespace {

using execution::Dtype;
using Integers = std::vector<std::int32_t>;

/// n tokens that choose R of E experts, evenly (skew 0) or all the same (skew 1), and the sorted
/// order of their rows.
struct Routing {
  Routing(const Shape& shape, std::int64_t seed) {
    std::mt19937_64 engine(static_cast<std::uint64_t>(seed));
    Integers all(static_cast<std::size_t>(shape["E"]));
    std::iota(all.begin(), all.end(), 0);
    for (std::int64_t t = 0; t < shape["n"]; ++t) {
      if (shape["skew"] == 0) std::shuffle(all.begin(), all.end(), engine);
      chosen.insert(chosen.end(), all.begin(), all.begin() + shape["R"]);
    }
    Integers starts(all.size() + 1);
    for (const std::int32_t expert : chosen) ++starts[static_cast<std::size_t>(expert) + 1];
    std::partial_sum(starts.begin(), starts.end(), starts.begin());
    for (const std::int32_t expert : chosen) rows.push_back(starts[expert]++);
  }

  Integers chosen;
  Integers rows;  ///< of each (token, slot) pair, by counting
};

struct PermuteIndexCase final : OperatorCase<kernels::PermuteIndex> {
  PermuteIndexCase(run::Gpu& gpu, const Shape& shape, std::int64_t seed)
      : OperatorCase(gpu,
                     {.tokens = shape["n"],
                      .topk = shape["R"],
                      .experts = shape["E"],
                      .rows = shape["n"] * shape["R"],
                      .storage = Dtype::bf16},
                     seed),
        routing_(shape, seed) {
    o_.indices->upload(routing_.chosen.data());
    o_.weights->fill_normal(seed, 0.5, 0.1);
  }
  std::vector<Agreement> check(const std::string&) override {
    const std::vector<std::byte> rows = o_.token_row->download();
    const bool same = std::equal(rows.begin(), rows.end(),
                                 reinterpret_cast<const std::byte*>(routing_.rows.data()));
    return {{"token_row", same ? 0.0 : 1.0, 0, false, "all rows", "0 if equal, 1 if not"}};
  }

 private:
  Routing routing_;
};

/// Rows of D values, in order of token and of expert.
template <class Op>
class RowsCase : public OperatorCase<Op> {
 public:
  RowsCase(run::Gpu& gpu, const Shape& shape, std::int64_t seed)
      : OperatorCase<Op>(gpu, sizes(shape), seed), routing_(shape, seed) {
    this->o_.token_row->upload(routing_.rows.data());
  }

 protected:
  static Op sizes(const Shape& shape) {
    Op op{};
    op.tokens = shape["n"];
    op.topk = shape["R"];
    op.rows = op.routed = shape["n"] * shape["R"];
    op.width = shape["D"];
    op.storage = Dtype::bf16;
    return op;
  }
  /// The largest error(t, rows of token t in slot order) of some tokens.
  template <class Error>
  Agreement worst(const char* name, const Operand& rows, double bound, const Error& error) const {
    constexpr std::int64_t kChecked = 64;  // tokens, spread
    double worst = 0;
    for (std::int64_t i = 0; i < kChecked; ++i) {
      const std::int64_t t = i * (this->op_.tokens - 1) / kChecked;
      std::vector<std::vector<double>> values;
      for (std::int64_t r = 0; r < this->op_.topk; ++r)
        values.push_back(rows.rows(routing_.rows[t * this->op_.topk + r], 1));
      worst = std::max(worst, error(t, values));
    }
    return {name, worst, bound, false, some_of(kChecked, this->op_.tokens, "tokens")};
  }

  Routing routing_;
};

struct GatherCase final : RowsCase<kernels::GatherRows> {
  using RowsCase::RowsCase;
  std::vector<Agreement> check(const std::string&) override {
    return {worst("rows", *o_.xs, 0, [&](std::int64_t t, const auto& rows) {
      double error = 0;
      for (const auto& row : rows) error = std::max(error, relative_error(row, o_.x->rows(t, 1)));
      return error;
    })};
  }
};

struct CombineCase final : RowsCase<kernels::CombineRows> {
  using RowsCase::RowsCase;
  std::vector<Agreement> check(const std::string&) override {
    return {worst(
        "tokens", *o_.ys, execution::epsilon(Dtype::bf16), [&](std::int64_t t, const auto& rows) {
          std::vector<double> sum(static_cast<std::size_t>(op_.width));
          for (const auto& row : rows)
            std::transform(row.begin(), row.end(), sum.begin(), sum.begin(), std::plus<>());
          return relative_error(o_.out->rows(t, 1), sum);
        })};
  }
};

/// An operator of the router.
template <class Op>
class RouterCase : public OperatorCase<Op> {
 public:
  RouterCase(run::Gpu& gpu, const Shape& shape, std::int64_t seed)
      : OperatorCase<Op>(gpu, sizes(shape), seed), ends_{0, static_cast<std::int32_t>(shape["n"])} {
    this->o_.cu_seqlens->upload(ends_.data());
  }

 protected:
  static Op sizes(const Shape& shape) {
    Op op{};
    op.tokens = shape["n"];
    op.options.experts = static_cast<int>(shape["E"]);
    op.options.topk = static_cast<int>(shape["R"]);
    op.starts = 2;
    op.storage = Dtype::fp32;
    if constexpr (requires { op.weights; }) op.weights = true;
    return op;
  }
  /// The same in fp64.
  Op wide() const {
    Op op = this->op_;
    op.storage = Dtype::fp64;
    return op;
  }
  /// From the device's own choices.
  std::vector<double> weights(const std::vector<double>& logits, const Integers& indices) const {
    std::vector<double> weights(indices.size());
    kernels::RouterWeights{
        .tokens = this->op_.tokens, .options = this->op_.options, .storage = Dtype::fp64}
        .template reference<double>(
            {.logits = logits.data(), .indices = indices.data(), .weights = weights.data()});
    return weights;
  }
  static Integers integers(const Operand& operand) {
    const std::vector<std::byte> bytes = operand.download();
    const auto* first = reinterpret_cast<const std::int32_t*>(bytes.data());
    return {first, first + operand.elements()};
  }

  // An exponential and a quotient of 2 units each, and a sum over the chosen experts; backward they
  // stand in differences of products.
  static constexpr double kUnit = execution::epsilon(Dtype::fp32);

  Integers ends_;
};

struct RouterForward final : RouterCase<kernels::RouterSelect> {
  using RouterCase::RouterCase;
  std::vector<Agreement> check(const std::string&) override {
    const std::vector<double> logits = o_.logits->values();
    const Integers indices = integers(*o_.indices);
    std::vector<double> expected, unused(indices.size());
    Integers selected(indices.size());
    on_host([&] {
      expected = weights(logits, indices);
      wide().reference<double>({.logits = logits.data(),
                                .bias = nullptr,
                                .cu_seqlens = ends_.data(),
                                .indices = selected.data(),
                                .weights = unused.data()});
    });
    std::int64_t different = 0;  // near ties, which fp32 may round to either side
    for (std::size_t i = 0; i < selected.size(); ++i) different += selected[i] != indices[i];
    return {
        {"weights", relative_error(o_.weights->values(), expected), 8 * kUnit, false, "all tokens"},
        {"indices", static_cast<double>(different) / static_cast<double>(selected.size()), 1e-4,
         false, "all tokens", "share of choices that differ"}};
  }
};

struct RouterBackward final : RouterCase<kernels::RouterBackward> {
  RouterBackward(run::Gpu& gpu, const Shape& shape, std::int64_t seed)
      : RouterCase(gpu, shape, seed),
        row_weight_(gpu, "row_weight", Role::output, Dtype::fp32, {op_.tokens * shape["R"]}) {
    const Bound logits(*o_.logits), ends(*o_.cu_seqlens), indices(*o_.indices),
        weights(*o_.weights), offsets(*o_.offsets), rows(*o_.token_row), unused(row_weight_);
    kernels::RouterSelect{.tokens = op_.tokens,
                          .options = op_.options,
                          .starts = op_.starts,
                          .storage = op_.storage,
                          .weights = true}
        .run(gpu.queue(), {.logits = logits,
                           .bias = {},
                           .cu_seqlens = ends,
                           .indices = indices,
                           .weights = weights});
    kernels::PermuteIndex{.tokens = op_.tokens,
                          .topk = op_.options.topk,
                          .experts = op_.options.experts,
                          .rows = op_.tokens * op_.options.topk,
                          .storage = op_.storage}
        .run(gpu.queue(), {.indices = indices,
                           .offsets = offsets,
                           .token_row = rows,
                           .row_weight = unused,
                           .weights = weights});
    gpu.queue().synchronize();
  }
  std::vector<Agreement> check(const std::string&) override {
    const std::vector<double> logits = o_.logits->values(), dweights = o_.dweights_rows->values();
    const Integers indices = integers(*o_.indices), rows = integers(*o_.token_row),
                   offsets = integers(*o_.offsets);
    std::vector<double> dlogits(logits.size());
    on_host([&] {
      const std::vector<double> chosen = weights(logits, indices);
      wide().reference<double>({.dweights_rows = dweights.data(),
                                .token_row = rows.data(),
                                .logits = logits.data(),
                                .indices = indices.data(),
                                .weights = chosen.data(),
                                .offsets = offsets.data(),
                                .cu_seqlens = ends_.data(),
                                .dlogits = dlogits.data()});
    });
    return {{"dlogits", relative_error(o_.dlogits->values(), dlogits), 20 * kUnit, false,
             "all tokens"}};
  }

 private:
  Operand row_weight_;
};

std::vector<Shape> choices() {
  return {Shape{{"n", 16384}, {"E", 32}, {"R", 4}, {"skew", 0}},
          Shape{{"n", 16384}, {"E", 128}, {"R", 6}, {"skew", 0}}};
}

std::vector<Shape> rows() {
  return {Shape{{"n", 16384}, {"E", 32}, {"R", 4}, {"D", 2048}, {"skew", 0}},
          Shape{{"n", 16384}, {"E", 128}, {"R", 6}, {"D", 2688}, {"skew", 0}},
          Shape{{"n", 16384}, {"E", 32}, {"R", 4}, {"D", 2048}, {"skew", 1}}};
}

}  // namespace

std::vector<Entry> moe_entries() {
  return {
      operator_entry<PermuteIndexCase>("permute_index", "rows of n R pairs sorted by expert",
                                       choices()),
      operator_entry<GatherCase>("gather_rows", "rows (n R, D)[token_row] = x (n, D)", rows()),
      operator_entry<CombineCase>("combine_rows", "out (n, D) = sum of each token's R rows",
                                  rows()),
      operator_entry<RouterForward>("router_forward", "choices and weights from logits (n, E)",
                                    choices()),
      operator_entry<RouterBackward>("router_backward", "dlogits of router_forward", choices())};
}

}  // namespace stowage::drivers::bench
