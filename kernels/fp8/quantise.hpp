#pragma once

#include "kernels/operator.hpp"

namespace stowage::kernels {

/// Per-tensor current scaling (Micikevicius et al., arXiv 2209.05433): x is about scale * payload,
/// with a payload of 8 bits. The scale is a power of two, so that only the payload is rounded, and
/// x and its transpose have the same one. It depends on nothing but x: no state, and the same bits
/// in every run of an op.

/// amax (1) = the largest magnitude of x (rows, width); a NaN counts as larger than all.
struct LargestMagnitude {
  static constexpr std::string_view kName = "largest_magnitude";
  std::int64_t rows, width;
  execution::Dtype storage;

  template <class T>
  struct Operands {
    InRows<T> x;
    SumsOut<T> amax;
  };
  void each(auto&& f, auto&... o) const {
    f(in("x", storage, {rows, width}), o.x...);
    f(out("amax", execution::accumulation(storage), {1}), o.amax...);
  }
  STOWAGE_OPERATOR_MEMBERS;
};

/// payload (rows, width) = x / scale, rounded to `payload`, and its transpose (width, rows), as the
/// products of Hopper want both; either may be left out. scale (1) is the least power of two with
/// which amax fits; NaN if amax is not finite, so that whatever is made of it shows.
struct Quantise {
  static constexpr std::string_view kName = "quantise";
  std::int64_t rows, width;  ///< multiples of 16
  execution::Dtype storage;
  execution::Dtype payload;  ///< e4m3 or e5m2
  bool plain = true, transposed = true;

  template <class T>
  struct Operands {
    InRows<T> x;
    SumsIn<T> amax;
    Of<T, std::uint8_t> payload, transposed;
    SumsOut<T> scale;
  };
  void each(auto&& f, auto&... o) const {
    f(in("x", storage, {rows, width}), o.x...);
    f(in("amax", execution::accumulation(storage), {1}), o.amax...);
    f(out("payload", payload, {rows, width}).when(plain), o.payload...);
    f(out("transposed", payload, {width, rows}).when(transposed), o.transposed...);
    f(out("scale", execution::accumulation(storage), {1}), o.scale...);
  }
  /// Empty, or what is wrong with the sizes.
  std::string fault() const;
  STOWAGE_OPERATOR_MEMBERS;
};

}  // namespace stowage::kernels
