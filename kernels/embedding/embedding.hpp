#pragma once

#include "kernels/operator.hpp"

namespace stowage::kernels {

/// x (n, D) = rows of table (V, D): x[t] = table[token[t]]. Tokens are below V: the loader refuses
/// others before step 1. Rows of negative ones, whose row another rank has, are zero.
struct EmbeddingForward {
  static constexpr std::string_view kName = "embedding_forward";
  std::int64_t tokens, vocabulary, width;
  execution::Dtype storage;

  template <class T>
  struct Operands {
    Of<T, const std::int32_t> token;
    In<T> table;
    Out<T> x;
  };
  void each(auto&& f, auto&... o) const {
    f(in("tokens", execution::Dtype::int32, {tokens}), o.token...);
    f(in("table", storage, {vocabulary, width}), o.table...);
    f(out("x", storage, {tokens, width}), o.x...);
  }
  STOWAGE_OPERATOR_MEMBERS;
};

/// dtable[v] = sum of dx[t] with token[t] = v, in an order that depends on the number of such t
/// alone (on the host that of t). Negative tokens add nothing. Without `accumulate` rows that no
/// token names become zero; with it they are not touched.
struct EmbeddingBackward {
  static constexpr std::string_view kName = "embedding_backward";
  std::int64_t tokens, vocabulary, width;
  execution::Dtype storage;
  bool accumulate;

  template <class T>
  struct Operands {
    Of<T, const std::int32_t> token;
    In<T> dx;
    SumsOut<T> dtable;
    Of<T, std::byte> workspace;
  };
  void each(auto&& f, auto&... o) const {
    f(in("tokens", execution::Dtype::int32, {tokens}), o.token...);
    f(in("dx", storage, {tokens, width}), o.dx...);
    f(sum("dtable", accumulate, execution::accumulation(storage), {vocabulary, width}),
      o.dtable...);
    f(workspace(workspace_bytes()), o.workspace...);
  }
  /// For the positions of each token on a GPU: about 32 bytes for each position and 8 for each row
  /// of the table. The host needs none.
  std::size_t workspace_bytes() const;
  /// Counts min(n, V) distinct rows of dtable; storing writes all of it.
  STOWAGE_OPERATOR_MEMBERS;
};

}  // namespace stowage::kernels
