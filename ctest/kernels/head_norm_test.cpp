// Norms of query and key heads against their formula and finite differences.
#include <gtest/gtest.h>

#include <cmath>

#include "ctest/kernels/head_norm_problem.hpp"
#include "ctest/kernels/packed.hpp"

namespace stowage::kernels::test {
namespace {

using Sizes = HeadNormSizes;

constexpr Sizes kSizes[] = {{1, 1, 1, 2, false},       {0, 2, 1, 4, true},   {5, 3, 1, 6, true},
                            {70, 4, 2, 16, false},     {130, 2, 2, 8, true}, {3, 8, 1, 128, false},
                            {70, 4, 2, 16, true, true}};

Values plain_forward(const Sizes& s, const Values& in, const Values& wq, const Values& wk) {
  Values out = in;
  const HeadSizes heads = s.of_heads();
  for (std::int64_t row = 0; row < s.tokens * heads.all(); ++row) {
    const std::int64_t head = row % heads.all();
    if (head >= s.heads + s.kv_heads) continue;
    double squares = 0;
    for (std::int64_t j = 0; j < s.head_dim; ++j)
      squares += in[at(row * s.head_dim + j)] * in[at(row * s.head_dim + j)];
    const double root = std::sqrt(squares / static_cast<double>(s.head_dim) + Sizes::kEps);
    for (std::int64_t j = 0; j < s.head_dim; ++j)
      out[at(row * s.head_dim + j)] *=
          ((s.zero_centred ? 1 : 0) + (head < s.heads ? wq : wk)[at(j)]) / root;
  }
  return out;
}

TEST(head_norm, forward_is_the_formula) {
  Random random;
  for (const Sizes& s : kSizes)
    for (const Dtype storage : kFloatingTypes) {
      const HeadRmsnormForward op = s.forward(storage);
      const Arrays<HeadRmsnormForward> o = head_norm_arrays(op, random);
      run(op, o);
      EXPECT_LT(relative_error(o.out.values(), plain_forward(s, o.in.values(), o.q_weight.values(),
                                                             o.k_weight.values())),
                tolerance(storage, static_cast<double>(s.head_dim)));
    }
}

TEST(head_norm, gradients_by_finite_differences) {
  Random random;
  for (const Sizes& s :
       {Sizes{1, 1, 1, 2, false}, Sizes{5, 3, 1, 6, true}, Sizes{5, 3, 1, 6, true, true}}) {
    const HeadRmsnormBackward op = s.backward(Dtype::fp64);
    const Arrays<HeadRmsnormBackward> o = head_norm_arrays(op, random);
    const Values in = o.in.values(), wq = o.q_weight.values(), wk = o.k_weight.values();
    const Values dout = o.dout.values(), old_q = o.dq_weight.values(), old_k = o.dk_weight.values();
    run(op, o);
    const auto near = [&](const Array& found, const Values& at, const Values& old, auto&& out_of) {
      Values expected = numeric_gradient(at, [&](const Values& v) { return dot(out_of(v), dout); });
      for (std::size_t i = 0; !old.empty() && i < expected.size(); ++i) expected[i] += old[i];
      EXPECT_LT(relative_error(found.values(), expected), 1e-8);
    };
    const Values none;
    near(o.din, in, none, [&](const Values& v) { return plain_forward(s, v, wq, wk); });
    near(o.dq_weight, wq, s.accumulate ? old_q : none,
         [&](const Values& v) { return plain_forward(s, in, v, wk); });
    near(o.dk_weight, wk, s.accumulate ? old_k : none,
         [&](const Values& v) { return plain_forward(s, in, wq, v); });
  }
}

TEST(head_norm, works_in_place) {
  Random random;
  const Sizes s{70, 4, 2, 16, false};
  const HeadRmsnormBackward backward = s.backward(Dtype::bf16);
  const Arrays<HeadRmsnormBackward> apart = head_norm_arrays(backward, random);
  Arrays<HeadRmsnormBackward> together = in_type_of(backward, apart);
  together.din = together.dout;
  run(backward, apart);
  run(backward, together);
  EXPECT_EQ(together.dout.values(), apart.din.values());
  EXPECT_EQ(together.dk_weight.values(), apart.dk_weight.values());

  const HeadRmsnormForward forward = s.forward(Dtype::bf16);
  const Arrays<HeadRmsnormForward> out = head_norm_arrays(forward, random);
  Arrays<HeadRmsnormForward> in_place = in_type_of(forward, out);
  in_place.out = in_place.in;
  run(forward, out);
  run(forward, in_place);
  EXPECT_EQ(in_place.in.values(), out.out.values());
}

}  // namespace
}  // namespace stowage::kernels::test
