#include <algorithm>
#include <cmath>

#include "execution/host_loops.hpp"
#include "kernels/blas.hpp"
#include "kernels/cross_entropy/linear_cross_entropy.hpp"
#include "kernels/cross_entropy/row_chunk.hpp"
#include "kernels/softmax.hpp"

namespace stowage::kernels {

using execution::Accumulation;

namespace {

constexpr std::int64_t kRowsPerBlock = 8;

// Logits of some rows become their losses and, with `scale`, the gradient of the logits.
template <class A>
void lose(Matrix<A> logits, const std::int32_t* targets, const A* scale, A* losses, A* hits,
          A z_coeff, A* z_losses) {
  execution::host_for(logits.rows, kRowsPerBlock, [=](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      A* row = logits.row(i);
      if (targets[i] < 0) {
        losses[i] = A{0};
        if (hits != nullptr) hits[i] = A{0};
        if (z_losses != nullptr) z_losses[i] = A{0};
        std::fill_n(row, logits.columns, A{0});
        continue;
      }
      const A maximum = largest(row, logits.columns), chosen = row[targets[i]];
      const A sum = exponentials(row, logits.columns, maximum);
      const A log_sum = std::log(sum);
      losses[i] = log_sum + (maximum - chosen);
      if (hits != nullptr) hits[i] = chosen >= maximum ? A{1} : A{0};
      const A z = log_sum + maximum;
      if (z_losses != nullptr) z_losses[i] = z_coeff * z * z;
      if (scale == nullptr) continue;
      A factor = *scale / sum;
      if (z_losses != nullptr) factor *= 1 + 2 * z_coeff * z;
      for (std::int64_t j = 0; j < logits.columns; ++j) row[j] *= factor;
      row[targets[i]] -= *scale;
    }
  });
}

}  // namespace

template <class S>
void LinearCrossEntropy::reference(const Operands<Pointers<S>>& o) const {
  using A = Accumulation<S>;
  const Matrix<const S> w{o.w, vocabulary, width, width};
  const Matrix<A> dw{o.dw, vocabulary, width, width};
  if (tokens == 0 && gradients && !accumulate) std::fill_n(o.dw, vocabulary * width, A{0});
  const std::int64_t chunk = cross_entropy_chunk(tokens, vocabulary);
  for (std::int64_t begin = 0; begin < tokens; begin += chunk) {
    const std::int64_t rows = std::min(chunk, tokens - begin);
    const Matrix<const S> h{o.h + begin * width, rows, width, width};
    const Matrix<A> logits{o.workspace, rows, vocabulary, vocabulary};
    matmul(Factor<S>{h, Transpose::no}, Factor<S>{w, Transpose::yes}, logits, false);
    lose<A>(logits, o.targets + begin, o.scale, o.losses + begin, o.hits ? o.hits + begin : nullptr,
            static_cast<A>(z_coeff), o.z_losses ? o.z_losses + begin : nullptr);
    if (!gradients) continue;
    const Matrix<S> dh{o.dh + begin * width, rows, width, width};
    matmul(Factor<A>{logits, Transpose::no}, Factor<S>{w, Transpose::no}, dh, false);
    matmul(Factor<A>{logits, Transpose::yes}, Factor<S>{h, Transpose::no}, dw,
           accumulate || begin > 0);
  }
}

STOWAGE_REFERENCES(LinearCrossEntropy)

}  // namespace stowage::kernels
