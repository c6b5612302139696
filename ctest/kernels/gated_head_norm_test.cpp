#include "kernels/gated_delta/gated_head_norm.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "ctest/kernels/operator_arrays.hpp"
#include "ctest/kernels/packed.hpp"

namespace stowage::kernels::test {
namespace {

constexpr double kEps = 1e-2;  // large, so that it is seen

/// By its definition, from y, z and w as they are.
Values gated(const GatedHeadNormForward& op, const Values& y, const Values& z, const Values& w) {
  Values out(y.size());
  for (std::size_t row = 0; row < y.size(); row += at(op.head_dim)) {
    double squares = 0;
    for (std::size_t j = 0; j < at(op.head_dim); ++j) squares += y[row + j] * y[row + j];
    const double rms = std::sqrt(squares / static_cast<double>(op.head_dim) + kEps);
    for (std::size_t j = 0; j < at(op.head_dim); ++j)
      out[row + j] = y[row + j] / rms * w[j] * z[row + j] / (1 + std::exp(-z[row + j]));
  }
  return out;
}

// Tokens of more than one partial sum, and one.
constexpr GatedHeadNormForward kCases[] = {
    {1, 1, 1, Dtype::fp64, kEps}, {7, 3, 5, Dtype::fp64, kEps}, {50, 4, 16, Dtype::fp64, kEps}};

TEST(gated_head_norm, forward_is_its_definition) {
  Random random;
  for (GatedHeadNormForward op : kCases)
    for (const Dtype storage : kFloatingTypes) {
      op.storage = storage;
      const auto o = make_arrays(op, random);
      run(op, o);
      EXPECT_LT(relative_error(o.out.values(), gated(op, o.y.values(), values(o.z), o.w.values())),
                tolerance(storage, static_cast<double>(op.head_dim), 8));
    }
}

TEST(gated_head_norm, gradients_by_finite_differences) {
  Random random;
  for (const GatedHeadNormForward& forward : kCases) {
    GatedHeadNormBackward op{forward.tokens, forward.heads, forward.head_dim,
                             Dtype::fp64,    kEps,          false};
    const auto o = make_arrays(op, random);
    run(op, o);
    const Values y = o.y.values(), z = values(o.z), w = o.w.values(), dout = o.dout.values();
    const auto loss = [&](const Values& some_y, const Values& some_z, const Values& some_w) {
      return dot(gated(forward, some_y, some_z, some_w), dout);
    };
    const Values dw = o.dw.values();
    EXPECT_LT(relative_error(o.dy.values(),
                             numeric_gradient(y, [&](const Values& v) { return loss(v, z, w); })),
              1e-7);
    EXPECT_LT(relative_error(stored(o.dz),
                             numeric_gradient(z, [&](const Values& v) { return loss(y, v, w); })),
              1e-7);
    EXPECT_LT(
        relative_error(dw, numeric_gradient(w, [&](const Values& v) { return loss(y, z, v); })),
        1e-7);
    op.accumulate = true;
    run(op, o);
    EXPECT_LT(relative_error(o.dw.values(), doubled(dw)), 1e-14);
  }
}

TEST(gated_head_norm, storage_types) {
  Random random;
  for (const GatedHeadNormForward& forward : kCases)
    for (const Dtype storage : {Dtype::fp32, Dtype::bf16}) {
      const GatedHeadNormBackward op{forward.tokens, forward.heads, forward.head_dim,
                                     storage,        kEps,          false};
      GatedHeadNormBackward wide = op;
      wide.storage = Dtype::fp64;
      const auto o = make_arrays(op, random);
      const auto expected = in_type_of(wide, o);
      run(op, o);
      run(wide, expected);
      const double terms = static_cast<double>(op.tokens * op.heads * op.head_dim);
      // A head of few elements may cancel to near 0.
      EXPECT_LT(std::min(relative_error(o.dy.values(), expected.dy.values()),
                         rms_difference(o.dy.values(), expected.dy.values())),
                tolerance(storage, terms, 16));
      EXPECT_LT(relative_error(stored(o.dz), stored(expected.dz)), tolerance(storage, terms, 16));
      EXPECT_LT(relative_error(o.dw.values(), expected.dw.values()),
                tolerance(Dtype::fp32, terms, 16));
    }
}

}  // namespace
}  // namespace stowage::kernels::test
