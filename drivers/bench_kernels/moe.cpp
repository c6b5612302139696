#include <algorithm>
#include <numeric>
#include <random>

#include "drivers/bench_kernels/bound.hpp"
#include "drivers/bench_kernels/entries.hpp"
#include "kernels/moe/permute.hpp"
#include "kernels/moe/router.hpp"

namespace stowage::drivers::bench {
namespace {

using execution::Dtype;

/// n tokens that choose R of E experts, evenly (skew 0) or all the same (skew 1), and the sorted
/// order of their rows.
class RoutedCase : public Case {
 protected:
  RoutedCase(run::Gpu& gpu, const Shape& shape, std::int64_t seed)
      : n_(shape["n"]),
        topk_(shape["R"]),
        experts_(shape["E"]),
        indices_(gpu, "indices", Role::input, Dtype::int32, {n_, topk_}),
        weights_(gpu, "weights", Role::input, Dtype::fp32, {n_, topk_}),
        offsets_(gpu, "offsets", Role::input, Dtype::int32, {experts_ + 1}),
        token_row_(gpu, "token_row", Role::input, Dtype::int32, {n_, topk_}),
        row_weight_(gpu, "row_weight", Role::input, Dtype::fp32, {n_ * topk_}),
        routing_{Bound(indices_), Bound(offsets_), Bound(token_row_), Bound(row_weight_),
                 Bound(weights_)} {
    std::mt19937_64 engine(static_cast<std::uint64_t>(seed));
    std::vector<std::int32_t> all(static_cast<std::size_t>(experts_));
    std::iota(all.begin(), all.end(), 0);
    for (std::int64_t t = 0; t < n_; ++t) {
      if (shape["skew"] == 0) std::shuffle(all.begin(), all.end(), engine);
      chosen_.insert(chosen_.end(), all.begin(), all.begin() + topk_);
    }
    indices_.upload(chosen_.data());
    weights_.fill_normal(seed, 0.5, 0.1);
    permute(gpu.queue());
    gpu.queue().synchronize();
  }

  void permute(execution::Queue& queue) {
    const auto& [indices, offsets, token_row, row_weight, weights] = routing_;
    kernels::permute_index(queue, indices, offsets, token_row, row_weight, weights);
  }

  /// Row of each (token, slot) pair, by counting.
  std::vector<std::int32_t> plain_rows() const {
    std::vector<std::int32_t> starts(static_cast<std::size_t>(experts_) + 1), rows;
    for (const std::int32_t expert : chosen_) ++starts[static_cast<std::size_t>(expert) + 1];
    std::partial_sum(starts.begin(), starts.end(), starts.begin());
    for (const std::int32_t expert : chosen_) rows.push_back(starts[expert]++);
    return rows;
  }

  std::int64_t n_, topk_, experts_;
  Operand indices_, weights_, offsets_, token_row_, row_weight_;
  std::array<Bound, 5> routing_;
  std::vector<std::int32_t> chosen_;
};

class PermuteIndexCase final : public RoutedCase {
 public:
  PermuteIndexCase(run::Gpu& gpu, const Shape& shape, std::int64_t seed)
      : RoutedCase(gpu, shape, seed) {
    operands = {&indices_, &weights_, &offsets_, &token_row_, &row_weight_};
  }
  execution::Cost cost() const override {
    return kernels::permute_index_cost(n_, topk_, experts_, Dtype::fp32);
  }
  void enqueue(const std::string&, execution::Queue& queue) override { permute(queue); }
  std::vector<Agreement> check(const std::string&) override {
    const std::vector<std::int32_t> expected = plain_rows();
    const std::vector<std::byte> rows = token_row_.download();
    const bool same =
        std::equal(rows.begin(), rows.end(), reinterpret_cast<const std::byte*>(expected.data()));
    return {{"token_row", same ? 0.0 : 1.0, 0, false, "all rows", "0 if equal, 1 if not"}};
  }
};

/// Rows of D values, in order of token (x) and of expert (xs).
class RowsCase : public RoutedCase {
 protected:
  RowsCase(run::Gpu& gpu, const Shape& shape, std::int64_t seed, bool gather)
      : RoutedCase(gpu, shape, seed),
        width_(shape["D"]),
        tokens_(gpu, "tokens", gather ? Role::input : Role::output, Dtype::bf16, {n_, width_}),
        rows_(gpu, "rows", gather ? Role::output : Role::input, Dtype::bf16, {n_ * topk_, width_}),
        bound_{Bound(tokens_), Bound(rows_)} {
    (gather ? tokens_ : rows_).fill_normal(seed, 0, 1);
    operands = {&token_row_, &offsets_, &tokens_, &rows_};
  }

  /// The rows of token t, in slot order.
  std::vector<std::vector<double>> rows_of(std::int64_t t,
                                           const std::vector<std::int32_t>& rows) const {
    std::vector<std::vector<double>> values;
    for (std::int64_t r = 0; r < topk_; ++r) values.push_back(rows_.rows(rows[t * topk_ + r], 1));
    return values;
  }

  static constexpr std::int64_t kChecked = 64;  // tokens, spread

  std::int64_t width_;
  Operand tokens_, rows_;
  std::array<Bound, 2> bound_;
};

class GatherCase final : public RowsCase {
 public:
  GatherCase(run::Gpu& gpu, const Shape& shape, std::int64_t seed)
      : RowsCase(gpu, shape, seed, true) {}
  execution::Cost cost() const override {
    return kernels::gather_rows_cost(n_, topk_, n_ * topk_, width_, Dtype::bf16);
  }
  void enqueue(const std::string&, execution::Queue& queue) override {
    kernels::gather_rows(queue, bound_[0], routing_[2], bound_[1]);
  }
  std::vector<Agreement> check(const std::string&) override {
    const std::vector<std::int32_t> rows = plain_rows();
    double worst = 0;
    for (std::int64_t i = 0; i < kChecked; ++i) {
      const std::int64_t t = i * (n_ - 1) / kChecked;
      for (const auto& row : rows_of(t, rows))
        worst = std::max(worst, relative_error(row, tokens_.rows(t, 1)));
    }
    return {{"rows", worst, 0, false, some_of(kChecked, n_, "tokens")}};
  }
};

class CombineCase final : public RowsCase {
 public:
  CombineCase(run::Gpu& gpu, const Shape& shape, std::int64_t seed)
      : RowsCase(gpu, shape, seed, false) {}
  execution::Cost cost() const override {
    return kernels::combine_rows_cost(n_, topk_, n_ * topk_, width_, Dtype::bf16, false);
  }
  void enqueue(const std::string&, execution::Queue& queue) override {
    kernels::combine_rows(queue, bound_[1], routing_[2], bound_[0], false);
  }
  std::vector<Agreement> check(const std::string&) override {
    const std::vector<std::int32_t> rows = plain_rows();
    double worst = 0;
    for (std::int64_t i = 0; i < kChecked; ++i) {
      const std::int64_t t = i * (n_ - 1) / kChecked;
      std::vector<double> sum(static_cast<std::size_t>(width_));
      for (const auto& row : rows_of(t, rows))
        std::transform(row.begin(), row.end(), sum.begin(), sum.begin(), std::plus<>());
      worst = std::max(worst, relative_error(tokens_.rows(t, 1), sum));
    }
    return {
        {"tokens", worst, execution::epsilon(Dtype::bf16), false, some_of(kChecked, n_, "tokens")}};
  }
};

/// Selection and weights, then their backward.
class RouterCase final : public RoutedCase {
 public:
  RouterCase(run::Gpu& gpu, const Shape& shape, std::int64_t seed, bool backward)
      : RoutedCase(gpu, shape, seed),
        backward_(backward),
        logits_(gpu, "logits", Role::input, Dtype::fp32, {n_, experts_}),
        cu_seqlens_(gpu, "cu_seqlens", Role::input, Dtype::int32, {2}),
        dweights_(gpu, "dweights_rows", Role::input, Dtype::fp32, {n_ * topk_}),
        dlogits_(gpu, "dlogits", Role::output, Dtype::fp32, {n_, experts_}),
        bound_{Bound(logits_), Bound(cu_seqlens_), Bound(dweights_), Bound(dlogits_)} {
    options_.experts = static_cast<int>(experts_);
    options_.topk = static_cast<int>(topk_);
    logits_.fill_normal(seed, 0, 1);
    dweights_.fill_normal(seed, 0, 1);
    const std::int32_t ends[] = {0, static_cast<std::int32_t>(n_)};
    cu_seqlens_.upload(ends);
    operands = {&logits_, &cu_seqlens_};
    if (backward)
      operands.insert(operands.end(),
                      {&dweights_, &indices_, &token_row_, &weights_, &offsets_, &dlogits_});
    else
      operands.insert(operands.end(), {&indices_, &weights_});
    if (!backward) return;
    kernels::router_select(gpu.queue(), options_, bound_[0], {}, bound_[1], routing_[0]);
    kernels::router_weights(gpu.queue(), options_, bound_[0], routing_[0], routing_[4]);
    permute(gpu.queue());
    gpu.queue().synchronize();
  }

  execution::Cost cost() const override {
    return backward_ ? kernels::router_backward_cost(n_, options_, Dtype::fp32)
                     : kernels::router_select_cost(n_, options_, Dtype::fp32, true);
  }
  void enqueue(const std::string&, execution::Queue& queue) override {
    if (backward_) {
      kernels::router_backward(queue, options_, bound_[2], routing_[2], bound_[0], routing_[0],
                               routing_[4], routing_[1], bound_[1], bound_[3]);
    } else {
      kernels::router_select(queue, options_, bound_[0], {}, bound_[1], routing_[0], routing_[4]);
    }
  }

  // What depends on the choices is computed from the device's own.
  std::vector<Agreement> check(const std::string&) override {
    const std::vector<double> logits = logits_.values(), dweights = dweights_.values();
    const auto indices = integers(indices_), rows = integers(token_row_), ends = integers(offsets_);
    const auto routed = static_cast<std::int32_t>(n_);
    std::vector<double> weights(static_cast<std::size_t>(n_ * topk_)), dlogits(logits.size());
    std::vector<std::int32_t> selected(weights.size());
    on_host([&] {
      kernels::router_weights_ref(n_, options_, logits.data(), indices.data(), weights.data());
      if (backward_)
        kernels::router_backward_ref(n_, options_, dweights.data(), rows.data(), logits.data(),
                                     indices.data(), weights.data(), ends.data(), &routed,
                                     dlogits.data());
      else
        kernels::router_select_ref<double>(n_, options_, logits.data(), nullptr, &routed,
                                           selected.data());
    });
    // An exponential and a quotient of 2 units each, and a sum over the chosen experts; backward
    // they stand in differences of products.
    const double unit = execution::epsilon(Dtype::fp32);
    if (backward_)
      return {
          {"dlogits", relative_error(dlogits_.values(), dlogits), 20 * unit, false, "all tokens"}};
    std::int64_t different = 0;  // near ties, which fp32 may round to either side
    for (std::size_t i = 0; i < selected.size(); ++i) different += selected[i] != indices[i];
    return {{"weights", relative_error(weights_.values(), weights), 8 * unit, false, "all tokens"},
            {"indices", static_cast<double>(different) / static_cast<double>(selected.size()), 1e-4,
             false, "all tokens", "share of choices that differ"}};
  }

 private:
  static std::vector<std::int32_t> integers(const Operand& operand) {
    const std::vector<std::byte> bytes = operand.download();
    const auto* first = reinterpret_cast<const std::int32_t*>(bytes.data());
    return {first, first + operand.elements()};
  }

  bool backward_;
  kernels::RouterOptions options_;
  Operand logits_, cu_seqlens_, dweights_, dlogits_;
  std::array<Bound, 4> bound_;
};

template <class Made, class... Arguments>
Entry entry(const char* name, const char* help, std::vector<Shape> shapes, Arguments... arguments) {
  return {
      .name = name,
      .help = help,
      .shapes = std::move(shapes),
      .implementations = {{"ours", "", ""}},
      .make = [=](run::Gpu& gpu, const Shape& shape, std::int64_t seed) -> std::unique_ptr<Case> {
        return std::make_unique<Made>(gpu, shape, seed, arguments...);
      }};
}

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
  return {entry<PermuteIndexCase>("permute_index", "rows of n R pairs sorted by expert", choices()),
          entry<GatherCase>("gather_rows", "rows (n R, D)[token_row] = x (n, D)", rows()),
          entry<CombineCase>("combine_rows", "out (n, D) = sum of each token's R rows", rows()),
          entry<RouterCase>("router_forward", "choices and weights from logits (n, E)", choices(),
                            false),
          entry<RouterCase>("router_backward", "dlogits of router_forward", choices(), true)};
}

}  // namespace stowage::drivers::bench
