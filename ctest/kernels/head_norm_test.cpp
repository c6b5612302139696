// Norms of query and key heads against their formula and finite differences.
#include <gtest/gtest.h>

#include <cmath>

#include "ctest/kernels/head_norm_problem.hpp"
#include "ctest/kernels/packed.hpp"

namespace stowage::kernels::test {
namespace {

using Sizes = HeadNorms::Sizes;

constexpr Sizes kSizes[] = {{1, 1, 1, 2, false},   {0, 2, 1, 4, true},   {5, 3, 1, 6, true},
                            {70, 4, 2, 16, false}, {130, 2, 2, 8, true}, {3, 8, 1, 128, false}};

Values plain_forward(const Sizes& s, const Values& in, const Values& wq, const Values& wk) {
  Values out = in;
  const HeadSizes heads = s.of_heads();
  for (std::int64_t row = 0; row < s.tokens * heads.all(); ++row) {
    const std::int64_t head = row % heads.all();
    if (head >= s.heads + s.kv_heads) continue;
    double squares = 0;
    for (std::int64_t j = 0; j < s.head_dim; ++j)
      squares += in[at(row * s.head_dim + j)] * in[at(row * s.head_dim + j)];
    const double root = std::sqrt(squares / static_cast<double>(s.head_dim) + HeadNorms::kEps);
    for (std::int64_t j = 0; j < s.head_dim; ++j)
      out[at(row * s.head_dim + j)] *= (head < s.heads ? wq : wk)[at(j)] / root;
  }
  return out;
}

/// Run on the host.
void run(const HeadNorms& norms) {
  on_queue([&](Queue& q) {
    const auto here = [](const Array& array) -> View { return array; };
    norms.enqueue(q, here);
  });
}

TEST(head_norm, forward_is_the_formula) {
  Random random;
  for (const Sizes& s : kSizes)
    for (const Dtype storage : kFloatingTypes) {
      const HeadNorms::Data data = HeadNorms::random_data(random, s, storage);
      const HeadNorms norms(storage, s, data);
      run(norms);
      EXPECT_LT(relative_error(norms.out.values(),
                               plain_forward(s, data.in, data.q_weight, data.k_weight)),
                tolerance(storage, static_cast<double>(s.head_dim)));
    }
}

TEST(head_norm, gradients_by_finite_differences) {
  Random random;
  for (const Sizes& s : {Sizes{1, 1, 1, 2, false}, Sizes{5, 3, 1, 6, true}}) {
    const HeadNorms::Data data = HeadNorms::random_data(random, s, Dtype::fp64);
    const HeadNorms norms(Dtype::fp64, s, data);
    run(norms);
    const auto loss = [&](const Values& in, const Values& wq, const Values& wk) {
      return dot(plain_forward(s, in, wq, wk), data.dout);
    };
    const auto near = [](const Values& found, Values expected, const Values& old, bool added) {
      for (std::size_t i = 0; added && i < expected.size(); ++i) expected[i] += old[i];
      EXPECT_LT(relative_error(found, expected), 1e-8);
    };
    near(norms.din.values(),
         numeric_gradient(data.in,
                          [&](const Values& v) { return loss(v, data.q_weight, data.k_weight); }),
         {}, false);
    near(norms.dq.values(),
         numeric_gradient(data.q_weight,
                          [&](const Values& v) { return loss(data.in, v, data.k_weight); }),
         data.old, s.accumulate);
    near(norms.dk.values(),
         numeric_gradient(data.k_weight,
                          [&](const Values& v) { return loss(data.in, data.q_weight, v); }),
         data.old, s.accumulate);
  }
}

TEST(head_norm, works_in_place) {
  Random random;
  const Sizes s{70, 4, 2, 16, false};
  const HeadNorms::Data data = HeadNorms::random_data(random, s, Dtype::bf16);
  const HeadNorms apart(Dtype::bf16, s, data), together(Dtype::bf16, s, data);
  run(apart);
  on_queue([&](Queue& q) {
    head_rmsnorm_backward(q,
                          {.dout = together.dout,
                           .in = together.in,
                           .q_weight = together.q_weight,
                           .k_weight = together.k_weight,
                           .din = together.dout,
                           .dq_weight = together.dq,
                           .dk_weight = together.dk,
                           .workspace = together.room},
                          s.of_heads(), HeadNorms::kEps, false);
    head_rmsnorm_forward(q, together.in, together.q_weight, together.k_weight, together.in,
                         s.of_heads(), HeadNorms::kEps);
  });
  EXPECT_EQ(together.in.values(), apart.out.values());
  EXPECT_EQ(together.dout.values(), apart.din.values());
  EXPECT_EQ(together.dk.values(), apart.dk.values());
}

}  // namespace
}  // namespace stowage::kernels::test
