#pragma once

#include <cmath>

#include "kernels/optimizer/newton_schulz.hpp"

namespace stowage::kernels::test {

/// What iterations in a narrow type may differ from fp64 on the same input, by norm. Of a step A,
/// A A, the polynomial and the product are rounded; what is left of the polynomial's terms where
/// singular values are one is (|a| + |b| + |c|) / |a + b + c| times smaller than they are. Errors
/// of steps are independent, and a step hands on relative errors as they are.
inline double newton_schulz_tolerance(const NewtonSchulz& op, execution::Dtype storage) {
  const auto [a, b, c] = op.options.coefficients;
  const double lost = (std::abs(a) + std::abs(b) + std::abs(c)) / std::abs(a + b + c);
  return std::sqrt(op.options.steps) * lost * execution::epsilon(storage);
}

}  // namespace stowage::kernels::test
