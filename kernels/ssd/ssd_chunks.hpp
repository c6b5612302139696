#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "kernels/ssd/ssd.hpp"
#include "kernels/tile.hpp"

/// What the forward and the backward reference of the scan share.
///
/// A document boundary is a decay of exactly 0: the state is multiplied by it, so nothing passes,
/// and no other part of the algorithm knows about documents. For the same reason decays between
/// tokens are running products of the tokens' decays, not exponentials of differences of sums.
namespace stowage::kernels::detail {

/// Sizes of a scan over `tokens` tokens.
struct SsdSizes : SsdShape {
  SsdSizes(const SsdShape& shape, std::int64_t token_count)
      : SsdShape(shape), tokens(token_count), chunks((token_count + chunk - 1) / chunk) {}

  std::int64_t heads_per_group() const { return heads / groups; }
  std::int64_t state_elements() const { return head_dim * state; }
  std::int64_t begin(std::int64_t index) const { return index * chunk; }
  std::int64_t size(std::int64_t index) const { return std::min(chunk, tokens - index * chunk); }

  /// The columns of X, B and C in [X | B | C].
  template <class T>
  Matrix<T> x(const Matrix<T>& xbc) const {
    return block(xbc, 0, 0, tokens, inner());
  }
  template <class T>
  Matrix<T> b(const Matrix<T>& xbc) const {
    return block(xbc, 0, inner(), tokens, shared());
  }
  template <class T>
  Matrix<T> c(const Matrix<T>& xbc) const {
    return block(xbc, 0, inner() + shared(), tokens, shared());
  }
  /// A dense y or dy.
  template <class T>
  Matrix<T> rows(T* y) const {
    return {y, tokens, inner(), inner()};
  }

  std::int64_t tokens, chunks;
};

/// Where things lie in the workspace; counts are of elements.
template <class A>
class SsdWorkspace {
 public:
  SsdWorkspace(const SsdSizes& sizes, A* workspace) : sizes_(sizes), base_(workspace) {}

  /// (H, n): dt.
  A* steps(std::int64_t head, std::int64_t chunk = 0) const {
    return base_ + head * sizes_.tokens + sizes_.begin(chunk);
  }
  /// (H, n): exp(dt A), 0 where a document begins after the first token.
  A* decays(std::int64_t head, std::int64_t chunk = 0) const {
    return steps(sizes_.heads, chunk) + head * sizes_.tokens;
  }
  /// (P, N): the state that enters a chunk.
  Matrix<A> state(std::int64_t chunk, std::int64_t head) const { return matrix(chunk, head); }
  /// (P, N): the gradient of the state that leaves a chunk.
  Matrix<A> adjoint(std::int64_t chunk, std::int64_t head) const {
    return matrix(sizes_.chunks + chunk, head);
  }

  /// A chunk's share of the sums of dt da, of dy x and of ddt_raw over its tokens.
  enum Sum { kDecaySum, kSkipSum, kBiasSum, kSums };
  A* sums(std::int64_t chunk, std::int64_t head) const {
    return matrix(2 * sizes_.chunks, 0).data + (chunk * sizes_.heads + head) * kSums;
  }

  static std::int64_t forward_elements(const SsdSizes& sizes) {
    return 2 * sizes.heads * sizes.tokens + sizes.chunks * sizes.heads * sizes.state_elements();
  }
  static std::int64_t backward_elements(const SsdSizes& sizes) {
    return forward_elements(sizes) + sizes.chunks * sizes.heads * (sizes.state_elements() + kSums);
  }

 private:
  Matrix<A> matrix(std::int64_t index, std::int64_t head) const {
    A* data = decays(sizes_.heads) + (index * sizes_.heads + head) * sizes_.state_elements();
    return {data, sizes_.head_dim, sizes_.state, sizes_.state};
  }

  const SsdSizes& sizes_;
  A* base_;
};

/// Fills steps and decays.
template <class S>
void ssd_steps(const SsdSizes& sizes, const SsdInputs<Pointers<S>>& inputs,
               const SsdWorkspace<execution::Accumulation<S>>& workspace);

/// Fills all states from the inputs; final_state (H, P, N) too, unless it is nullptr.
template <class S>
void ssd_states(const SsdSizes& sizes, const SsdInputs<Pointers<S>>& inputs,
                const SsdWorkspace<execution::Accumulation<S>>& workspace,
                execution::Accumulation<S>* final_state = nullptr);

/// Fills all adjoints from dy; those of the ends as the operands ask.
template <class S>
void ssd_adjoints(const SsdSizes& sizes, const OperandsOf<SsdBackward, Pointers<S>>& o,
                  const SsdWorkspace<execution::Accumulation<S>>& workspace);

template <class A>
A softplus(A x) {
  return std::max(x, A{0}) + std::log1p(std::exp(-std::abs(x)));
}

/// The rows of a chunk, in the columns [index * width, (index + 1) * width).
template <class T>
Matrix<T> chunk_block(const SsdSizes& sizes, const Matrix<T>& m, std::int64_t chunk,
                      std::int64_t index, std::int64_t width) {
  return block(m, sizes.begin(chunk), index * width, sizes.size(chunk), width);
}

/// to[i] = decay[0] * … * decay[i]: what is left at token i of the state that enters the chunk.
template <class A>
void decay_from_entry(const A* decay, std::int64_t count, A* to) {
  A product{1};
  for (std::int64_t i = 0; i < count; ++i) to[i] = product *= decay[i];
}

/// to[j] = decay[j + 1] * … * decay[count - 1]: what leaves the chunk of the share of token j.
template <class A>
void decay_to_exit(const A* decay, std::int64_t count, A* to) {
  A product{1};
  for (std::int64_t j = count - 1; j >= 0; --j) {
    to[j] = product;
    product *= decay[j];
  }
}

/// Advances row i of the matrix L of decays between two tokens of a chunk: before, row[j] is
/// L[i - 1, j] for j < i; after, row[j] is L[i, j] = decay[j + 1] * … * decay[i] for j <= i.
template <class A>
void next_decay_row(const A* decay, std::int64_t i, A* row) {
  for (std::int64_t j = 0; j < i; ++j) row[j] *= decay[i];
  row[i] = A{1};
}

}  // namespace stowage::kernels::detail
