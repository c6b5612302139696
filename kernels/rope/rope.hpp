#pragma once

#include "kernels/operator.hpp"
#include "kernels/rope/rope_frequencies.hpp"

namespace stowage::kernels {

/// Rotary positions (RoFormer, arXiv 2104.09864) on the queries and keys of a fused projection.
///
/// in, out (n, (H + 2K) P): H query heads, K key heads, K value heads. Of the first R dimensions of
/// a query or key head, i < R/2 is paired with i + R/2 (the half-split of GPT-NeoX) and rotated by
/// the angle position * frequency(i); the position counts from the start of the token's document.
/// Dimensions behind R, if there are any (GPT-NeoX's rotary_pct), and values are copied.
/// cu_seqlens: document starts; seq_idx: the document of each token (the last one for the tail).
/// With `positions` each token's is given instead: that of one more token of each sequence.
/// `out` may be `in`. The gradient (`backward`) rotates that of the output back.
struct Rope {
  static constexpr std::string_view kName = "rope";
  std::int64_t tokens, heads, kv_heads, head_dim;
  std::int64_t rotary_dim;  ///< R, 2 to head_dim
  std::int64_t starts;      ///< elements of cu_seqlens
  execution::Dtype storage;
  RopeFrequencies frequencies;
  bool backward = false;
  std::int64_t first_token = 0;  ///< of the rows, among those that cu_seqlens counts
  bool positions = false;

  template <class T>
  struct Operands {
    In<T> in;
    Of<T, const std::int32_t> cu_seqlens, seq_idx, positions;
    Out<T> out;
  };
  void each(auto&& f, auto&... o) const {
    f(in("in", storage, {tokens, width()}), o.in...);
    f(in("cu_seqlens", execution::Dtype::int32, {starts}).when(!positions), o.cu_seqlens...);
    f(in("seq_idx", execution::Dtype::int32, {tokens}).when(!positions), o.seq_idx...);
    f(in("positions", execution::Dtype::int32, {tokens}).when(positions), o.positions...);
    f(out("out", storage, {tokens, width()}), o.out...);
  }
  std::int64_t width() const { return (heads + 2 * kv_heads) * head_dim; }
  std::string fault() const {
    if (head_dim % 2 != 0) return "head_dim is odd";
    if (rotary_dim <= 0 || rotary_dim > head_dim) return "rotary_dim is not from 2 to head_dim";
    return rotary_dim % 2 == 0 ? "" : "rotary_dim is odd";
  }
  STOWAGE_OPERATOR_MEMBERS;
};

}  // namespace stowage::kernels
