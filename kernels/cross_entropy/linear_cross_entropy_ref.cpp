#include <algorithm>
#include <cmath>

#include "execution/host_loops.hpp"
#include "kernels/blas.hpp"
#include "kernels/cross_entropy/linear_cross_entropy.hpp"
#include "kernels/cross_entropy/row_chunk.hpp"
#include "kernels/softmax.hpp"
#include "kernels/tile.hpp"

namespace stowage::kernels {

using execution::Accumulation;
using execution::Bf16;

namespace {

constexpr std::int64_t kRowsPerBlock = 8;

// Logits of some rows become their losses and, with `scale`, the gradient of the logits.
template <class A>
void lose(Matrix<A> logits, const std::int32_t* targets, const A* scale, A* losses,
          A* hits = nullptr) {
  execution::host_for(logits.rows, kRowsPerBlock, [=](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      A* row = logits.row(i);
      if (targets[i] < 0) {
        losses[i] = A{0};
        if (hits != nullptr) hits[i] = A{0};
        std::fill_n(row, logits.columns, A{0});
        continue;
      }
      const A maximum = largest(row, logits.columns), chosen = row[targets[i]];
      const A sum = exponentials(row, logits.columns, maximum);
      losses[i] = std::log(sum) + (maximum - chosen);
      if (hits != nullptr) hits[i] = chosen >= maximum ? A{1} : A{0};
      if (scale == nullptr) continue;
      const A factor = *scale / sum;
      for (std::int64_t j = 0; j < logits.columns; ++j) row[j] *= factor;
      row[targets[i]] -= *scale;
    }
  });
}

// Calls body(begin, rows, logits) for each chunk of rows with its logits.
template <class S, class Body>
void for_each_chunk(Matrix<const S> h, Matrix<const S> w, Accumulation<S>* workspace, Body&& body) {
  using A = Accumulation<S>;
  const std::int64_t chunk = cross_entropy_chunk(h.rows, w.rows);
  for (std::int64_t begin = 0; begin < h.rows; begin += chunk) {
    const std::int64_t rows = std::min(chunk, h.rows - begin);
    const Matrix<A> logits{workspace, rows, w.rows, w.rows};
    const Factor<S> left{block(h, begin, 0, rows, h.columns), Transpose::no};
    matmul(left, Factor<S>{w, Transpose::yes}, logits, false);
    body(begin, rows, logits);
  }
}

}  // namespace

template <class S>
void linear_cross_entropy_ref(Matrix<const S> h, Matrix<const S> w, const std::int32_t* targets,
                              const Accumulation<S>* scale, Accumulation<S>* losses, Matrix<S> dh,
                              Matrix<Accumulation<S>> dw, Accumulation<S>* workspace,
                              bool accumulate) {
  using A = Accumulation<S>;
  if (h.rows == 0 && !accumulate)
    for (std::int64_t i = 0; i < dw.rows; ++i) std::fill_n(dw.row(i), dw.columns, A{0});
  for_each_chunk(h, w, workspace, [&](std::int64_t begin, std::int64_t rows, Matrix<A> logits) {
    lose(logits, targets + begin, scale, losses + begin);
    const Matrix<const A> dlogits = logits;
    matmul(Factor<A>{dlogits, Transpose::no}, Factor<S>{w, Transpose::no},
           block(dh, begin, 0, rows, dh.columns), false);
    matmul(Factor<A>{dlogits, Transpose::yes},
           Factor<S>{block(h, begin, 0, rows, h.columns), Transpose::no}, dw,
           accumulate || begin > 0);
  });
}

template <class S>
void linear_cross_entropy_loss_ref(Matrix<const S> h, Matrix<const S> w,
                                   const std::int32_t* targets, Accumulation<S>* losses,
                                   Accumulation<S>* workspace, Accumulation<S>* hits) {
  using A = Accumulation<S>;
  for_each_chunk(h, w, workspace, [&](std::int64_t begin, std::int64_t, Matrix<A> logits) {
    lose<A>(logits, targets + begin, nullptr, losses + begin, hits ? hits + begin : nullptr);
  });
}

#define STOWAGE_INSTANTIATE(S)                                                                  \
  template void linear_cross_entropy_ref(Matrix<const S>, Matrix<const S>, const std::int32_t*, \
                                         const Accumulation<S>*, Accumulation<S>*, Matrix<S>,   \
                                         Matrix<Accumulation<S>>, Accumulation<S>*, bool);      \
  template void linear_cross_entropy_loss_ref(Matrix<const S>, Matrix<const S>,                 \
                                              const std::int32_t*, Accumulation<S>*,            \
                                              Accumulation<S>*, Accumulation<S>*);
STOWAGE_INSTANTIATE(double)
STOWAGE_INSTANTIATE(float)
STOWAGE_INSTANTIATE(Bf16)
#undef STOWAGE_INSTANTIATE

}  // namespace stowage::kernels
