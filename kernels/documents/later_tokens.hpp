#pragma once

#include "kernels/operator.hpp"

namespace stowage::kernels {

/// What each token's document has `distance` tokens later: later[t] = ids[t + distance], or -1
/// where that is no token of the same document.
struct LaterTokens {
  static constexpr std::string_view kName = "later_tokens";
  std::int64_t tokens, distance;

  template <class T>
  struct Operands {
    Of<T, const std::int32_t> ids, seq_idx;
    Of<T, std::int32_t> later;
  };
  void each(auto&& f, auto&... o) const {
    f(in("ids", execution::Dtype::int32, {tokens}), o.ids...);
    f(in("seq_idx", execution::Dtype::int32, {tokens}), o.seq_idx...);
    f(out("later", execution::Dtype::int32, {tokens}), o.later...);
  }
  std::string fault() const { return distance > 0 ? "" : "the distance is not positive"; }
  execution::Cost cost() const;
  void run(execution::Queue& queue, const Operands<execution::View>& views) const;
};

}  // namespace stowage::kernels
