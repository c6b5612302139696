// The router on a GPU in fp32 against the host reference in fp64 on the same logits. Experts that a
// forced load draws are the host's to the bit.

#include <algorithm>
#include <cmath>

#include "ctest/kernels/operator_check.hpp"
#include "execution/error.hpp"
#include "kernels/moe/permute.hpp"
#include "kernels/moe/router.hpp"

namespace stowage::kernels::test {
namespace {

std::size_t at_index(std::int64_t i) { return static_cast<std::size_t>(i); }

struct Case {
  RouterOptions options;
  std::int64_t n, tail;
};

std::vector<Case> all_cases() {
  std::vector<Case> all;
  for (const bool sigmoid : {true, false})
    for (const bool normalise : {true, false})
      for (const auto& [experts, topk, groups, group_topk] : {std::array{1, 1, 1, 1},
                                                              {6, 2, 1, 1},
                                                              {32, 4, 1, 1},
                                                              {48, 3, 6, 2},
                                                              {128, 6, 1, 1},
                                                              {256, 8, 8, 4},
                                                              {100, 40, 4, 3},
                                                              {600, 5, 600, 7},
                                                              {1024, 4, 1, 1}}) {
        RouterOptions o{.experts = experts,
                        .topk = topk,
                        .groups = groups,
                        .group_topk = group_topk,
                        .sigmoid = sigmoid,
                        .normalise = normalise,
                        .scaling = 2.5};
        if (normalise) {
          o.aux_coeff = 0.02;
          o.z_coeff = 0.01;
          o.aux_scale = 0.25;
        }
        for (const ForcedLoad load :
             {ForcedLoad::none, sigmoid ? ForcedLoad::balanced : ForcedLoad::zipf}) {
          o.load = load;
          o.layer = 7;
          // Of one expert there is one token, which stays.
          o.rows.first = load == ForcedLoad::none || experts == 1 ? 0 : 2;
          all.push_back({o, experts == 1 ? 1 : experts == 32 ? 1000 : 75, experts == 1 ? 0 : 6});
        }
      }
  return all;
}

// Everything that a router reads and writes, in one accumulation dtype.
struct Router {
  Router(const Case& c, Dtype dtype, const Values& x, const Values& b, const Values& d)
      : options(c.options),
        logits(dtype, {c.n, c.options.experts}, x),
        bias(dtype, {c.options.experts}, b),
        dweights_rows(dtype, {c.n * c.options.topk}, d),
        cu_seqlens(int32_array({0, static_cast<std::int32_t>(c.n - c.tail)})),
        indices(Dtype::int32, {c.n, c.options.topk}),
        weights(dtype, {c.n, c.options.topk}),
        offsets(Dtype::int32, {c.options.experts + 1}),
        token_row(Dtype::int32, {c.n, c.options.topk}),
        row_weight(dtype, {c.n * c.options.topk}),
        dlogits(dtype, {c.n, c.options.experts}),
        losses(dtype, {2}),
        added(dtype, {2}, Values{1, 2}) {}

  /// An operator of the router in the case's dtype.
  template <class Op>
  Op op() const {
    Op op{};
    op.tokens = logits.view().extent(0);
    op.options = options;
    op.storage = logits.dtype();
    if constexpr (requires { op.starts; }) op.starts = 2;
    return op;
  }
  /// @param beside the weights that are chosen in the same pass, if any
  template <class At>
  void select(Queue& q, At& at, const Array& beside = {}) const {
    auto select = op<RouterSelect>();
    select.bias = true;
    select.weights = static_cast<bool>(beside.view());
    enqueue(q, select,
            {.logits = logits,
             .bias = bias,
             .cu_seqlens = cu_seqlens,
             .indices = indices,
             .weights = beside},
            at);
  }
  template <class At>
  void weigh(Queue& q, At& at) const {
    enqueue(q, op<RouterWeights>(), {.logits = logits, .indices = indices, .weights = weights}, at);
  }
  template <class At>
  void rest(Queue& q, At& at) const {
    weigh(q, at);
    enqueue(q,
            PermuteIndex{.tokens = logits.view().extent(0),
                         .topk = options.topk,
                         .experts = options.experts,
                         .rows = static_cast<std::int64_t>(row_weight.size()),
                         .storage = logits.dtype()},
            {.indices = indices,
             .offsets = offsets,
             .token_row = token_row,
             .row_weight = row_weight,
             .weights = weights},
            at);
    auto sums = op<RouterLosses>();
    for (const Array& to : {losses, added}) {
      enqueue(q, sums,
              {.logits = logits, .offsets = offsets, .cu_seqlens = cu_seqlens, .losses = to}, at);
      sums.accumulate = true;
    }
    enqueue(q, op<RouterBackward>(),
            {.dweights_rows = dweights_rows,
             .token_row = token_row,
             .logits = logits,
             .indices = indices,
             .weights = weights,
             .offsets = offsets,
             .cu_seqlens = cu_seqlens,
             .dlogits = dlogits},
            at);
  }

  RouterOptions options;
  Array logits, bias, dweights_rows, cu_seqlens, indices, weights, offsets, token_row, row_weight,
      dlogits, losses, added;
};

constexpr auto kHere = [](const Array& array) { return array.view(); };

struct Draw {
  Draw(const Case& c, Random& random)
      : logits(rounded(random.normal(c.n * c.options.experts, 2), Dtype::fp32)),
        bias(rounded(random.normal(c.options.experts, 0.3), Dtype::fp32)),
        dweights(rounded(random.normal(c.n * c.options.topk), Dtype::fp32)) {}
  Values logits, bias, dweights;
};

// What a token prefers, in fp64; its groups by the sum of their two best.
Values preferences(const RouterOptions& o, const double* logits, const Values& bias) {
  Values p(logits, logits + o.experts);
  double sum = 0;
  for (double& v : p) v = o.sigmoid ? 1 / (1 + std::exp(-v)) : std::exp(v);
  for (const double v : p) sum += v;
  for (std::size_t e = 0; e < p.size(); ++e) p[e] = (o.sigmoid ? p[e] : p[e] / sum) + bias[e];
  return p;
}

// The smallest distance between any two groups, and between any two experts: choices may differ
// where it is below the rounding of fp32.
double closest(Values values) {
  std::ranges::sort(values);
  double least = 1;
  for (std::size_t i = 1; i < values.size(); ++i)
    least = std::min(least, values[i] - values[i - 1]);
  return least;
}

double closest_choice(const RouterOptions& o, const Values& preference) {
  Values groups;
  const int size = o.experts / o.groups;
  for (int g = 0; g < o.groups; ++g) {
    Values members(preference.begin() + g * size, preference.begin() + (g + 1) * size);
    std::ranges::sort(members, std::greater<>());
    groups.push_back(members[0] + (size > 1 ? members[1] : 0));
  }
  return std::min(closest(groups), closest(preference));
}

TEST(router_gpu, selection_is_the_hosts_but_for_rounding) {
  STOWAGE_NEED_GPU();
  Random random;
  for (const Case& c : all_cases()) {
    const RouterOptions& o = c.options;
    SCOPED_TRACE(testing::Message() << o.experts << " experts, " << o.groups << " groups");
    const Draw d(c, random);
    const Router gpu(c, Dtype::fp32, d.logits, d.bias, d.dweights);
    const Router host(c, Dtype::fp64, d.logits, d.bias, d.dweights);
    const Values actual =
        on_gpu([&](Queue& q, auto& at) { gpu.select(q, at); }, {gpu.indices})[0].values();
    on_queue([&](Queue& q) { host.select(q, kHere); });
    const Values expected = host.indices.values();
    int different = 0;
    for (std::int64_t t = 0; t < c.n; ++t) {
      const auto row = at_index(t * o.topk);
      if (std::equal(&actual[row], &actual[row] + o.topk, &expected[row])) continue;
      ++different;
      EXPECT_EQ(o.load, ForcedLoad::none) << "token " << t;
      ASSERT_LT(t, c.n - c.tail) << "tail token " << t;
      const double distance =
          closest_choice(o, preferences(o, &d.logits[at_index(t * o.experts)], d.bias));
      EXPECT_LT(distance, 8 * execution::epsilon(Dtype::fp32)) << "token " << t;
    }
    EXPECT_LE(different, 2);
  }
}

// Logits and biases of few values: equal sums are equal in every format, others far apart.
TEST(router_gpu, ties_go_to_the_lower_index) {
  STOWAGE_NEED_GPU();
  Random random;
  for (Case c : all_cases()) {
    if (!c.options.sigmoid) continue;  // a softmax may round its sum to either side of a tie
    Draw d(c, random);
    for (double& v : d.logits) v = static_cast<double>(random.integer(-1, 1));
    for (double& v : d.bias) v = 0;
    const Router gpu(c, Dtype::fp32, d.logits, d.bias, d.dweights);
    const Router host(c, Dtype::fp64, d.logits, d.bias, d.dweights);
    const auto results = on_gpu([&](Queue& q, auto& at) { gpu.select(q, at); }, {gpu.indices});
    on_queue([&](Queue& q) { host.select(q, kHere); });
    EXPECT_EQ(results[0].values(), host.indices.values()) << c.options.experts << " experts";
  }
}

TEST(router_gpu, weights_losses_and_gradients_match_fp64) {
  STOWAGE_NEED_GPU();
  Random random;
  for (const Case& c : all_cases()) {
    const RouterOptions& o = c.options;
    SCOPED_TRACE(testing::Message() << o.experts << " experts, sigmoid " << o.sigmoid
                                    << ", normalise " << o.normalise);
    const Draw d(c, random);
    Router gpu(c, Dtype::fp32, d.logits, d.bias, d.dweights);
    const Router host(c, Dtype::fp64, d.logits, d.bias, d.dweights);
    on_queue([&](Queue& q) { host.select(q, kHere); });
    gpu.indices.set(host.indices.values());  // the same choices, from here on
    on_queue([&](Queue& q) { host.rest(q, kHere); });
    const auto results =
        on_gpu([&](Queue& q, auto& at) { gpu.rest(q, at); },
               {gpu.weights, gpu.dlogits, gpu.losses, gpu.added}, o.experts == 32 ? 100 : 2);
    const double allowed = tolerance(Dtype::fp32, static_cast<double>(o.experts), 8);
    EXPECT_LT(relative_error(results[0].values(), host.weights.values()), allowed) << "weights";
    if (o.experts > 1) {  // else all gradients are 0 but for rounding
      EXPECT_LT(relative_error(results[1].values(), host.dlogits.values()), allowed) << "dlogits";
    }
    const double sums = tolerance(Dtype::fp32, static_cast<double>(c.n), 8);
    const Values losses = host.losses.values(), added = host.added.values();
    for (const std::size_t i : {0, 1}) {
      EXPECT_NEAR(results[2].values()[i], losses[i], sums * std::abs(losses[i]));
      EXPECT_NEAR(results[3].values()[i], added[i], sums * std::abs(added[i]));
    }
  }
}

// Chosen and weighed in one pass: what both operators give, to the bit.
TEST(router_gpu, weights_beside_the_choice_are_those_of_router_weights) {
  STOWAGE_NEED_GPU();
  Random random;
  for (const Case& c : all_cases()) {
    const Draw d(c, random);
    const Router r(c, Dtype::fp32, d.logits, d.bias, d.dweights);
    const Router fused(c, Dtype::fp32, d.logits, d.bias, d.dweights);
    const auto apart = on_gpu(
        [&](Queue& q, auto& at) {
          r.select(q, at);
          r.weigh(q, at);
        },
        {r.indices, r.weights});
    const auto both = on_gpu([&](Queue& q, auto& at) { fused.select(q, at, fused.weights); },
                             {fused.indices, fused.weights});
    EXPECT_EQ(apart[0].values(), both[0].values()) << c.options.experts << " experts";
    EXPECT_EQ(apart[1].values(), both[1].values()) << c.options.experts << " experts";
  }
}

TEST(router_gpu, no_routed_token_gives_zero) {
  STOWAGE_NEED_GPU();
  Random random;
  const Case c{{.experts = 40, .topk = 3, .aux_coeff = 1, .z_coeff = 1}, 5, 5};
  const Draw d(c, random);
  const Router r(c, Dtype::fp32, d.logits, d.bias, d.dweights);
  const auto results = on_gpu(
      [&](Queue& q, auto& at) {
        r.select(q, at);
        r.rest(q, at);
      },
      {r.indices, r.weights, r.dlogits, r.losses});
  EXPECT_EQ(results[0].values(), Values(15, -1.0));
  EXPECT_EQ(results[1].values(), Values(15, 0.0));
  EXPECT_EQ(results[2].values(), Values(200, 0.0));
  EXPECT_EQ(results[3].values(), Values(2, 0.0));
}

TEST(router_gpu, a_nan_chooses_experts_that_exist) {
  STOWAGE_NEED_GPU();
  const Case c{{.experts = 48, .topk = 4, .groups = 6, .group_topk = 2}, 3, 0};
  const Router r(c, Dtype::fp32, Values(144, NAN), Values(48, 0.0), Values(12, 0.0));
  for (const double index :
       on_gpu([&](Queue&q, auto&at) { r.select(q, at); }, {r.indices})[0].values()) {
    EXPECT_GE(index, 0);
    EXPECT_LT(index, 48);
  }
}

TEST(router_gpu, fp64_and_too_many_experts_are_refused) {
  STOWAGE_NEED_GPU();
  Random random;
  for (const auto& [experts, dtype] : {std::pair{2, Dtype::fp64}, {1025, Dtype::fp32}}) {
    const Case c{{.experts = experts, .topk = 1}, 2, 0};
    const Draw d(c, random);
    const Router r(c, dtype, d.logits, d.bias, d.dweights);
    EXPECT_THROW(on_gpu([&](Queue& q, auto& at) { r.select(q, at); }, {r.indices}, 0),
                 execution::Error);
  }
}

}  // namespace
}  // namespace stowage::kernels::test
