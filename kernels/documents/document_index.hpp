#pragma once

#include "kernels/operator.hpp"

namespace stowage::kernels {

/// The document of each token: seq_idx[t] = number of documents that end at or before t.
///
/// cu_seqlens: document starts, cu_seqlens[0] = 0, non-decreasing, padded to the capacity C by
/// repeating the last value. seq_idx is non-decreasing; tokens at or beyond cu_seqlens[C] are the
/// tail and get C. Empty documents hold no token.
struct DocumentIndex {
  static constexpr std::string_view kName = "document_index";
  std::int64_t tokens, capacity;

  template <class T>
  struct Operands {
    Of<T, const std::int32_t> cu_seqlens;
    Of<T, std::int32_t> seq_idx;
  };
  void each(auto&& f, auto&... o) const {
    f(in("cu_seqlens", execution::Dtype::int32, {capacity + 1}), o.cu_seqlens...);
    f(out("seq_idx", execution::Dtype::int32, {tokens}), o.seq_idx...);
  }
  std::string fault() const { return capacity < 0 ? "cu_seqlens has no element" : ""; }
  execution::Cost cost() const;
  void run(execution::Queue& queue, const Operands<execution::View>& views) const;
};

}  // namespace stowage::kernels
