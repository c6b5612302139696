#pragma once

#include "kernels/buffer_of.hpp"

namespace stowage::kernels {

/// c (m, n) = a_scale * b_scale * a (m, k) b (n, k)^T, or c += with `accumulate`: the product of
/// two quantised tensors (quantise.hpp). Both factors have k as their inner dimension, since
/// Hopper's 8-bit products read no other.
///
/// A linear layer y = x w^T takes x and w as they are stored; dx = dy w the transpose of w; and
/// dw = dy^T x the transposes of dy and x.
struct Fp8Product {
  static constexpr std::string_view kName = "fp8_product";
  std::int64_t m, n, k;  ///< multiples of 16
  execution::Dtype storage;
  execution::Dtype a, b;  ///< e4m3 or e5m2, not e5m2 twice
  bool sums = false;      ///< c is of the accumulation dtype, as gradients of weights are
  bool accumulate = false;
  bool fast = false;  ///< leaves sums in the 14 bits that Hopper's products add up in

  template <class T>
  struct Operands {
    BufferOfType<T, const std::uint8_t> a, b;
    BufferOfType<T, const Sums> a_scale, b_scale;
    RowsOfType<T, Either> c;
  };
  void each(auto&& f, auto&... o) const {
    const execution::Dtype wide = execution::accumulation(storage);
    f(in("a", a, {m, k}), o.a...);
    f(in("b", b, {n, k}), o.b...);
    f(in("a_scale", wide, {1}), o.a_scale...);
    f(in("b_scale", wide, {1}), o.b_scale...);
    f(sum("c", accumulate, result(), {m, n}), o.c...);
  }
  execution::Dtype result() const { return sums ? execution::accumulation(storage) : storage; }
  /// Empty, or what is wrong with the sizes and formats.
  std::string fault() const;
  STOWAGE_OPERATOR_MEMBERS;
};

}  // namespace stowage::kernels
