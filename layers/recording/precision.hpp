#pragma once

#include <array>
#include <optional>
#include <string_view>

#include "execution/dtype.hpp"

namespace stowage::inputs {
class Deck;
}

namespace stowage::layers {

/// A precision of the large products of a layer, said once. The values of train.precision and their
/// help, what products round and save, and on which GPUs they run follow from its row.
struct ProductPrecision {
  std::string_view name;  ///< in a deck
  std::string_view help;  ///< "of dtype"
  /// As what activations and weights are rounded; none: products take them as they are stored.
  std::optional<execution::Dtype> factors;
  /// Whether a rounded factor is saved in place of the values, where backward needs no others.
  bool saves_factors;
  int capability;  ///< least compute capability of a GPU, 89 for 8.9; 0: any
};

inline constexpr ProductPrecision kProductsOfDtype{"dtype", "of dtype", {}, false, 0};
inline constexpr ProductPrecision kProductsOf8Bits{
    "fp8", "of 8 bits, each factor with a scale of its own", execution::Dtype::e4m3, true, 89};
/// All of them, the default first.
inline constexpr std::array kProductPrecisions{&kProductsOfDtype, &kProductsOf8Bits};

/// What the products of one layer round to.
struct ProductFormats {
  const ProductPrecision* precision = &kProductsOfDtype;
  execution::Dtype gradients = execution::Dtype::e4m3;  ///< of what is rounded

  bool quantised() const { return precision->factors.has_value(); }
  /// Of activations and weights.
  execution::Dtype values() const { return *precision->factors; }
};

/// @throws Error (exit 2) if a deck's products are none of a GPU's of this compute capability
void require_products(const inputs::Deck& deck, int capability);

}  // namespace stowage::layers
