#pragma once

#include <algorithm>
#include <cmath>

#include "kernels/optimizer/newton_schulz.hpp"

namespace stowage::kernels::test {

/// What iterations in a narrow type may differ from fp64 on the same input, by norm. Of a step A,
/// A A, the polynomial and the product are rounded; what is left of the polynomial's terms where
/// singular values are one is (|a| + |b| + |c|) / |a + b + c| times smaller than they are. Errors
/// of steps are independent, and a step hands on relative errors as they are. Where sums are of the
/// type of storage, fp32, each of the k additions of a sum is rounded as well: by norm sqrt(k / 6)
/// roundings, as partial sums of independent terms grow with the root of their number.
inline double newton_schulz_tolerance(const NewtonSchulz& op, execution::Dtype storage) {
  const auto [a, b, c] = op.options.coefficients;
  const double lost = (std::abs(a) + std::abs(b) + std::abs(c)) / std::abs(a + b + c);
  const auto terms = static_cast<double>(std::max(op.rows, op.columns));
  const double sums = storage == execution::Dtype::fp32 ? std::sqrt(1 + terms / 6) : 1.0;
  return std::sqrt(op.options.steps) * lost * sums * execution::epsilon(storage);
}

}  // namespace stowage::kernels::test
