#pragma once

#include "kernels/exponential.hpp"

namespace stowage::kernels {

/// 1 / (1 + exp(-x)), with the exact limits 0 and 1.
template <class T>
T sigmoid(T x) {
  return T{1} / (T{1} + exponential(-x));
}

/// x * sigmoid(x).
template <class T>
T silu(T x) {
  return x * sigmoid(x);
}

/// d silu(x) / dx, given sigmoid(x).
template <class T>
T silu_derivative(T x, T sigmoid_x) {
  return sigmoid_x * (T{1} + x * (T{1} - sigmoid_x));
}

}  // namespace stowage::kernels
