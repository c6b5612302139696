#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "ctest/kernels/operator_arrays.hpp"
#include "execution/error.hpp"
#include "kernels/moe/permute.hpp"
#include "kernels/moe/router.hpp"

namespace stowage::kernels::test {
namespace {

std::size_t index(std::int64_t i) { return static_cast<std::size_t>(i); }

// A router whose last tokens are the tail, on random logits.
struct Router {
  Router(Random& random, RouterOptions o, std::int64_t tokens, std::int64_t tail, Dtype dtype)
      : options(o),
        n(tokens),
        routed(tokens - tail),
        logits(rounded(random.normal(tokens * o.experts, 2), dtype)),
        bias(rounded(random.normal(o.experts, 0.3), dtype)) {}

  RouterOptions options;
  std::int64_t n, routed;
  Values logits, bias;

  Array cu_seqlens() const {
    const auto end = static_cast<std::int32_t>(routed);
    return int32_array({0, end / 2, end, end});
  }
  /// An operator of the router.
  template <class Op>
  Op op(Dtype dtype) const {
    Op op{};
    op.tokens = n;
    op.options = options;
    op.storage = dtype;
    if constexpr (requires { op.starts; }) op.starts = 4;
    return op;
  }
};

// Sigmoid or softmax of one token's logits, in fp64.
Values plain_scores(const RouterOptions& o, const double* logits) {
  Values scores(index(o.experts));
  for (std::size_t e = 0; e < scores.size(); ++e)
    scores[e] = o.sigmoid ? 1 / (1 + std::exp(-logits[e])) : std::exp(logits[e]);
  if (!o.sigmoid) {
    const double sum = std::accumulate(scores.begin(), scores.end(), 0.0);
    for (double& s : scores) s /= sum;
  }
  return scores;
}

// Experts by sorting: groups first, by the sum of their two best, then experts of those groups.
std::vector<double> plain_selection(const Router& r, std::int64_t token) {
  const RouterOptions& o = r.options;
  Values preference = plain_scores(o, &r.logits[index(token * o.experts)]);
  for (std::size_t e = 0; e < preference.size(); ++e) preference[e] += r.bias[e];
  const int size = o.experts / o.groups;
  std::vector<std::pair<double, int>> groups;  // smallest first: negated score, then number
  for (int g = 0; g < o.groups; ++g) {
    Values members(preference.begin() + g * size, preference.begin() + (g + 1) * size);
    std::ranges::sort(members, std::greater<>());
    groups.emplace_back(-(members[0] + (size > 1 ? members[1] : 0)), g);
  }
  std::ranges::sort(groups);
  std::vector<std::pair<double, int>> experts;
  for (int k = 0; k < o.group_topk; ++k)
    for (int e = groups[index(k)].second * size; e < (groups[index(k)].second + 1) * size; ++e)
      experts.emplace_back(-preference[index(e)], e);
  std::ranges::sort(experts);
  std::vector<double> chosen;
  for (int k = 0; k < o.topk; ++k) chosen.push_back(experts[index(k)].second);
  return chosen;
}

std::vector<RouterOptions> all_options() {
  std::vector<RouterOptions> all;
  for (const bool sigmoid : {true, false})
    for (const bool normalise : {true, false}) {
      all.push_back({.experts = 8, .topk = 3, .sigmoid = sigmoid, .normalise = normalise});
      all.push_back({.experts = 12,
                     .topk = 4,
                     .groups = 4,
                     .group_topk = 2,
                     .sigmoid = sigmoid,
                     .normalise = normalise,
                     .scaling = 2.5});
      all.push_back({.experts = 1, .topk = 1, .sigmoid = sigmoid, .normalise = normalise});
      all.push_back({.experts = 6,
                     .topk = 2,
                     .groups = 6,
                     .group_topk = 3,
                     .sigmoid = sigmoid,
                     .normalise = normalise,
                     .aux_coeff = 0.02,
                     .z_coeff = 0.01,
                     .aux_scale = 0.25});
    }
  return all;
}

Array select(const Router& r, Dtype dtype) {
  const Array logits(dtype, {r.n, r.options.experts}, r.logits);
  const Array bias(dtype, {r.options.experts}, r.bias);
  const Array indices(Dtype::int32, {r.n, r.options.topk});
  RouterSelect op = r.op<RouterSelect>(dtype);
  op.bias = true;
  run(op, {.logits = logits,
           .bias = bias,
           .cu_seqlens = r.cu_seqlens(),
           .indices = indices,
           .weights = {}});
  return indices;
}

TEST(router, selection_matches_sorting) {
  Random random;
  for (const RouterOptions& options : all_options()) {
    const Router r(random, options, 75, 6, Dtype::fp64);
    const Values indices = select(r, Dtype::fp64).values();
    for (std::int64_t t = 0; t < r.n; ++t) {
      const auto first = indices.begin() + t * options.topk;
      const Values chosen(first, first + options.topk);
      if (t < r.routed)
        EXPECT_EQ(chosen, plain_selection(r, t)) << "token " << t;
      else
        EXPECT_EQ(chosen, Values(index(options.topk), -1.0)) << "tail token " << t;
    }
  }
}

TEST(router, ties_go_to_the_lower_index) {
  Random random;
  for (const int groups : {1, 2}) {
    Router r(random, {.experts = 8, .topk = 3, .groups = groups, .group_topk = 1}, 4, 0,
             Dtype::fp32);
    std::ranges::fill(r.logits, 0.5);
    std::ranges::fill(r.bias, 0.0);
    EXPECT_EQ(select(r, Dtype::fp32).values(), (Values{0, 1, 2, 0, 1, 2, 0, 1, 2, 0, 1, 2}));
  }
}

TEST(router, bias_selects_but_does_not_weigh) {
  const RouterOptions options{.experts = 3, .topk = 1, .normalise = false};
  const Array logits(Dtype::fp32, {1, 3}, Values{2, 1, 0}), bias(Dtype::fp32, {3}, Values{0, 0, 5});
  const Array indices(Dtype::int32, {1, 1}), weights(Dtype::fp32, {1, 1});
  const Array cu_seqlens = int32_array({0, 1}), beside(Dtype::fp32, {1, 1});
  RouterSelect op{
      .tokens = 1, .options = options, .starts = 2, .storage = Dtype::fp32, .bias = true};
  Arrays<RouterSelect> o{
      .logits = logits, .bias = bias, .cu_seqlens = cu_seqlens, .indices = indices, .weights = {}};
  run(op, o);
  run(RouterWeights{.tokens = 1, .options = options, .storage = Dtype::fp32},
      {.logits = logits, .indices = indices, .weights = weights});
  EXPECT_EQ(indices.values(), Values{2});
  EXPECT_EQ(weights.values(), Values{0.5});
  op.weights = true;
  o.weights = beside;
  run(op, o);
  EXPECT_EQ(beside.values(), Values{0.5});
}

// Weights of fixed choices, in fp64.
Values plain_weights(const Router& r, const Values& logits, const Values& indices) {
  const RouterOptions& o = r.options;
  Values weights(indices.size(), 0.0);
  for (std::int64_t t = 0; t < r.routed; ++t) {
    const Values scores = plain_scores(o, &logits[index(t * o.experts)]);
    double sum = 0;
    for (int k = 0; k < o.topk; ++k)
      sum += scores[index(std::lround(indices[index(t * o.topk + k)]))];
    for (int k = 0; k < o.topk; ++k) {
      const double score = scores[index(std::lround(indices[index(t * o.topk + k)]))];
      weights[index(t * o.topk + k)] = o.scaling * (o.normalise ? score / sum : score);
    }
  }
  return weights;
}

// {aux, z} of fixed choices, in fp64.
Values plain_losses(const Router& r, const Values& logits, const Values& indices) {
  const RouterOptions& o = r.options;
  const auto n = static_cast<double>(r.routed);
  Values share(index(o.experts), 0.0), mean(index(o.experts), 0.0);
  double z = 0;
  for (std::int64_t t = 0; t < r.routed; ++t) {
    const double* row = &logits[index(t * o.experts)];
    const Values scores = plain_scores(o, row);
    const double total = std::accumulate(scores.begin(), scores.end(), 0.0);
    double exponentials = 0;
    for (int e = 0; e < o.experts; ++e) {
      mean[index(e)] += scores[index(e)] / total / n;
      exponentials += std::exp(row[e]);
    }
    z += std::pow(std::log(exponentials), 2) / n;
    for (int k = 0; k < o.topk; ++k)
      share[index(std::lround(indices[index(t * o.topk + k)]))] += 1 / (n * o.topk);
  }
  return {o.aux_scale * o.aux_coeff * o.experts * dot(share, mean), o.aux_scale * o.z_coeff * z};
}

TEST(router, weights_match_definition) {
  Random random;
  for (const RouterOptions& options : all_options())
    for (const Dtype dtype : {Dtype::fp64, Dtype::fp32}) {
      const Router r(random, options, 70, 5, dtype);
      const Array logits(dtype, {r.n, options.experts}, r.logits), indices = select(r, dtype);
      const Array weights(dtype, {r.n, options.topk});
      run(r.op<RouterWeights>(dtype), {.logits = logits, .indices = indices, .weights = weights});
      const Values expected = plain_weights(r, r.logits, indices.values());
      EXPECT_LT(relative_error(weights.values(), expected),
                tolerance(dtype, static_cast<double>(options.experts)));
    }
}

// The rows of the choices.
void permute(const Router& r, Dtype dtype, const Array& indices, const Array& weights,
             const Array& offsets, const Array& row_of) {
  const std::int64_t pairs = r.n * r.options.topk;
  run(PermuteIndex{.tokens = r.n,
                   .topk = r.options.topk,
                   .experts = r.options.experts,
                   .rows = pairs,
                   .storage = dtype},
      {.indices = indices,
       .offsets = offsets,
       .token_row = row_of,
       .row_weight = Array(dtype, {pairs}),
       .weights = weights});
}

TEST(router, losses_match_definition) {
  Random random;
  for (RouterOptions options : all_options())
    for (const Dtype dtype : {Dtype::fp64, Dtype::fp32}) {
      options.aux_coeff = 0.01;
      options.z_coeff = 0.001;
      const Router r(random, options, 150, 7, dtype);
      const Array logits(dtype, {r.n, options.experts}, r.logits), indices = select(r, dtype);
      const Array offsets(Dtype::int32, {options.experts + 1}), stored(dtype, {2});
      const Array added(dtype, {2}, Values{1, 2});
      const Array row_of(Dtype::int32, {r.n, options.topk});
      permute(r, dtype, indices, Array(dtype, {r.n, options.topk}), offsets, row_of);
      RouterLosses op = r.op<RouterLosses>(dtype);
      for (const Array& losses : {stored, added}) {
        run(op,
            {.logits = logits, .offsets = offsets, .cu_seqlens = r.cu_seqlens(), .losses = losses});
        op.accumulate = true;
      }
      const Values expected = plain_losses(r, r.logits, indices.values());
      const double allowed = tolerance(dtype, 150);
      EXPECT_NEAR(stored.values()[0], expected[0], allowed * expected[0]);
      EXPECT_NEAR(stored.values()[1], expected[1], allowed * expected[1]);
      EXPECT_NEAR(added.values()[0], expected[0] + 1, 2 * allowed);
      EXPECT_NEAR(added.values()[1], expected[1] + 2, 4 * allowed);
    }
}

// dlogits through the queue, from the gradient of the weights in (token, slot) order.
Values backward(const Router& r, const Values& dweights, Dtype dtype) {
  const RouterOptions& o = r.options;
  const Array logits(dtype, {r.n, o.experts}, r.logits), indices = select(r, dtype);
  const Array weights(dtype, {r.n, o.topk}), offsets(Dtype::int32, {o.experts + 1});
  const Array row_of(Dtype::int32, {r.n, o.topk}), dlogits(dtype, {r.n, o.experts});
  run(r.op<RouterWeights>(dtype), {.logits = logits, .indices = indices, .weights = weights});
  permute(r, dtype, indices, weights, offsets, row_of);
  Array dweights_rows(dtype, {r.n * o.topk});  // poison where no row is
  Values sorted = dweights_rows.values();
  const Values position = row_of.values();
  for (std::size_t pair = 0; pair < position.size(); ++pair)
    if (position[pair] >= 0) sorted[index(std::lround(position[pair]))] = dweights[pair];
  dweights_rows.set(sorted);
  run(r.op<RouterBackward>(dtype), {.dweights_rows = dweights_rows,
                                    .token_row = row_of,
                                    .logits = logits,
                                    .indices = indices,
                                    .weights = weights,
                                    .offsets = offsets,
                                    .cu_seqlens = r.cu_seqlens(),
                                    .dlogits = dlogits});
  return dlogits.values();
}

TEST(router, gradients_match_finite_differences) {
  Random random;
  for (const RouterOptions& options : all_options()) {
    const Router r(random, options, 11, 3, Dtype::fp64);
    const Values dweights = random.normal(r.n * options.topk);
    const Values indices = select(r, Dtype::fp64).values();
    const Values numeric = numeric_gradient(r.logits, [&](const Values& logits) {
      const Values losses = plain_losses(r, logits, indices);
      return dot(dweights, plain_weights(r, logits, indices)) + losses[0] + losses[1];
    });
    const Values dlogits = backward(r, dweights, Dtype::fp64);
    // One expert: all weights are 1, both gradients are 0 but for rounding.
    const double scale = std::sqrt(dot(numeric, numeric)) + 1e-3;
    Values difference = dlogits;
    for (std::size_t i = 0; i < numeric.size(); ++i) difference[i] -= numeric[i];
    EXPECT_LT(std::sqrt(dot(difference, difference)), 1e-7 * scale);
  }
}

TEST(router, backward_in_fp32_matches_fp64) {
  Random random;
  const RouterOptions options{
      .experts = 16, .topk = 4, .groups = 4, .group_topk = 2, .aux_coeff = 0.01, .z_coeff = 0.001};
  const Router r(random, options, 130, 11, Dtype::fp32);
  const Values dweights = rounded(random.normal(r.n * options.topk), Dtype::fp32);
  EXPECT_LT(relative_error(backward(r, dweights, Dtype::fp32), backward(r, dweights, Dtype::fp64)),
            tolerance(Dtype::fp32, 16, 8));
}

TEST(router, no_routed_token_gives_zero) {
  Random random;
  const RouterOptions options{.experts = 4, .topk = 2, .aux_coeff = 1, .z_coeff = 1};
  const Router r(random, options, 5, 5, Dtype::fp32);
  EXPECT_EQ(backward(r, Values(10, 1.0), Dtype::fp32), Values(20, 0.0));
  const Array logits(Dtype::fp32, {5, 4}, r.logits), losses(Dtype::fp32, {2});
  run(r.op<RouterLosses>(Dtype::fp32), {.logits = logits,
                                        .offsets = int32_array({0, 0, 0, 0, 0}),
                                        .cu_seqlens = r.cu_seqlens(),
                                        .losses = losses});
  EXPECT_EQ(losses.values(), (Values{0, 0}));
}

TEST(router, options_that_do_not_fit_are_refused) {
  const RouterSelect op{.tokens = 2,
                        .options = {.experts = 8, .topk = 5, .groups = 4, .group_topk = 2},
                        .starts = 2,
                        .storage = Dtype::fp32};
  Random random;
  EXPECT_THROW(run(op, make_arrays(op, random)), execution::Error);
}

}  // namespace
}  // namespace stowage::kernels::test
