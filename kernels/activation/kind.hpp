#pragma once

#include <cstdint>

namespace stowage::kernels {

/// The nonlinearity of an MLP. squared_relu: max(x, 0)^2 (arXiv 2109.08668). swiglu: silu(gate) *
/// up (arXiv 2002.05202) on rows [gate, up].
enum class Activation : unsigned char { squared_relu, swiglu };

/// Columns of the input for F columns of the output: F, or 2 F for swiglu.
constexpr std::int64_t activation_width(Activation kind, std::int64_t columns) {
  return kind == Activation::swiglu ? 2 * columns : columns;
}

}  // namespace stowage::kernels
