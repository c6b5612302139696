#pragma once

#include <optional>

#include "kernels/activation/kind.hpp"
#include "kernels/buffer_of.hpp"

namespace stowage::kernels {

/// Per-tensor current scaling (Micikevicius et al., arXiv 2209.05433): x is about scale * payload,
/// with a payload of 8 bits. The scale is a power of two, so that only the payload is rounded, and
/// x and its transpose have the same one. It depends on nothing but x: no state, and the same bits
/// in every run of an op.
///
/// With an `activation` what is measured and quantised is act(x), as rounded to storage, and x has
/// rows of activation_width(width).

/// amax (1) = the largest magnitude of x (rows, width); a NaN counts as larger than all.
struct LargestMagnitude {
  static constexpr std::string_view kName = "largest_magnitude";
  std::int64_t rows, width;
  execution::Dtype storage;
  std::optional<Activation> activation = {};

  template <class T>
  struct Operands {
    InRows<T> x;
    SumsOut<T> amax;
  };
  void each(auto&& f, auto&... o) const {
    f(in("x", storage, {rows, source_width(activation, width)}), o.x...);
    f(out("amax", execution::accumulation(storage), {1}), o.amax...);
  }
  /// Columns of x.
  static std::int64_t source_width(std::optional<Activation> activation, std::int64_t width) {
    return activation ? activation_width(*activation, width) : width;
  }
  /// Empty, or what is wrong with the sizes.
  std::string fault() const;
  STOWAGE_OPERATOR_MEMBERS;
};

/// amax (1) = the larger of itself and the largest magnitude of x (rows, width): columns of a
/// tensor whose other columns were measured where they were written.
struct JoinLargestMagnitude {
  static constexpr std::string_view kName = "join_largest_magnitude";
  std::int64_t rows, width;
  execution::Dtype storage;

  template <class T>
  struct Operands {
    InColumns<T> x;
    SumsOut<T> amax;
  };
  void each(auto&& f, auto&... o) const {
    f(in("x", storage, {rows, width}), o.x...);
    f(sum("amax", true, execution::accumulation(storage), {1}), o.amax...);
  }
  STOWAGE_OPERATOR_MEMBERS;
};

/// payload (rows, width) = x / scale, rounded to `payload`, and its transpose (width, rows), as the
/// products of Hopper want both; either may be left out. scale (1) is the least power of two with
/// which the largest amax fits; NaN if it is not finite, so that whatever is made of it shows. Each
/// of the two has it.
struct Quantise {
  static constexpr std::string_view kName = "quantise";
  std::int64_t rows, width;  ///< multiples of 16
  execution::Dtype storage;
  execution::Dtype payload;  ///< e4m3 or e5m2
  bool plain = true, transposed = true;
  std::optional<Activation> activation = {};
  int parts = 1;  ///< of a tensor, which have one scale; x is one of them

  template <class T>
  struct Operands {
    InRows<T> x;
    SumsIn<T> amax;  ///< (parts)
    BufferOfType<T, std::uint8_t> payload;
    BufferOfType<T, Sums> scale;
    BufferOfType<T, std::uint8_t> transposed;
    BufferOfType<T, Sums> transposed_scale;
  };
  void each(auto&& f, auto&... o) const {
    const execution::Dtype wide = execution::accumulation(storage);
    f(in("x", storage, {rows, LargestMagnitude::source_width(activation, width)}), o.x...);
    f(in("amax", wide, {parts}), o.amax...);
    f(out("payload", payload, {rows, width}).when(plain), o.payload...);
    f(out("scale", wide, {1}).when(plain), o.scale...);
    f(out("transposed", payload, {width, rows}).when(transposed), o.transposed...);
    f(out("transposed_scale", wide, {1}).when(transposed), o.transposed_scale...);
  }
  /// Empty, or what is wrong with the sizes.
  std::string fault() const;
  STOWAGE_OPERATOR_MEMBERS;
};

/// transposed (width, rows) of a payload (rows, width): its scale is that of the payload.
struct TransposePayload {
  static constexpr std::string_view kName = "transpose_payload";
  std::int64_t rows, width;  ///< multiples of 16
  execution::Dtype storage;
  execution::Dtype payload;  ///< e4m3 or e5m2

  template <class T>
  struct Operands {
    BufferOfType<T, const std::uint8_t> payload;
    Of<T, std::uint8_t> transposed;
  };
  void each(auto&& f, auto&... o) const {
    f(in("payload", payload, {rows, width}), o.payload...);
    f(out("transposed", payload, {width, rows}), o.transposed...);
  }
  /// Empty, or what is wrong with the sizes.
  std::string fault() const;
  STOWAGE_OPERATOR_MEMBERS;
};

}  // namespace stowage::kernels
