#pragma once

#include <algorithm>
#include <cmath>

#include "kernels/optimizer/newton_schulz.hpp"

namespace stowage::kernels::test {

/// What iterations in a narrow type may differ from fp64 on the same input, by norm. Of a step A,
/// A A, the polynomial and the product are rounded; what is left of the polynomial's terms where
/// singular values are one is (|a| + |b| + |c|) / |a + b + c| times smaller than they are. Errors
/// of steps are independent, and a step hands on relative errors as they are. Where sums are of the
/// type of storage, fp32, they are rounded as well. Products add in blocks of blocks: of k terms
/// log2 k levels, each of which rounds once, by a third of the square of half a unit.
inline double newton_schulz_tolerance(const NewtonSchulz& op, execution::Dtype storage) {
  std::int64_t longest = 0;
  for (const EqualMatrices& m : op.matrices) longest = std::max(longest, m.larger());
  const auto [a, b, c] = op.options.coefficients;
  const double lost = (std::abs(a) + std::abs(b) + std::abs(c)) / std::abs(a + b + c);
  const auto terms = static_cast<double>(longest);
  const double sums =
      storage == execution::Dtype::fp32 ? std::sqrt(1 + std::max(0.0, std::log2(terms)) / 3) : 1.0;
  return std::sqrt(op.options.steps) * lost * sums * execution::epsilon(storage);
}

}  // namespace stowage::kernels::test
