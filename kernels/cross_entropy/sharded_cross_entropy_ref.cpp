#include "kernels/cross_entropy/sharded_cross_entropy_ref.hpp"

#include <algorithm>
#include <cmath>

#include "execution/host_loops.hpp"
#include "kernels/blas.hpp"
#include "kernels/softmax.hpp"

namespace stowage::kernels {

using execution::Accumulation;
using execution::Bf16;

namespace {

constexpr std::int64_t kRowsPerBlock = 8;

/// Maximum and sum of exponentials of a row over all ranks, and its target's logit.
template <class A>
struct RowStats {
  A maximum, sum, chosen;
};

template <class A>
RowStats<A> merged(const A* stats, std::int64_t rows, std::int64_t row, int ranks) {
  RowStats<A> all{stats[3 * row], A{0}, A{0}};
  for (int r = 1; r < ranks; ++r) all.maximum = std::max(all.maximum, stats[3 * (r * rows + row)]);
  for (int r = 0; r < ranks; ++r) {
    const A* one = stats + 3 * (r * rows + row);
    all.sum += one[1] * std::exp(one[0] - all.maximum);
    all.chosen += one[2];
  }
  return all;
}

}  // namespace

template <class S>
void sharded_logits_ref(Matrix<const S> h, Matrix<const S> w, const std::int32_t* targets,
                        std::int64_t first, Matrix<Accumulation<S>> logits,
                        Accumulation<S>* stats) {
  using A = Accumulation<S>;
  matmul(Factor<S>{h, Transpose::no}, Factor<S>{w, Transpose::yes}, logits, false);
  execution::host_for(logits.rows, kRowsPerBlock, [=](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      const A* row = logits.row(i);
      const std::int64_t target = targets[i] - first;
      A* to = stats + 3 * i;
      to[0] = largest(row, logits.columns);
      to[1] = ordered_sum<A>(logits.columns, [row, maximum = to[0]](std::int64_t j) {
        return exponential(row[j] - maximum);
      });
      to[2] = target >= 0 && target < logits.columns ? row[target] : A{0};
    }
  });
}

template <class A>
void lose_parts_ref(Matrix<A> logits, const std::int32_t* targets, std::int64_t first,
                    const A* stats, int ranks, const A* scale, A* losses, A* hits) {
  execution::host_for(logits.rows, kRowsPerBlock, [=](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      A* row = logits.row(i);
      if (targets[i] < 0) {
        losses[i] = A{0};
        if (hits != nullptr) hits[i] = A{0};
        if (scale != nullptr) std::fill_n(row, logits.columns, A{0});
        continue;
      }
      const RowStats<A> all = merged(stats, logits.rows, i, ranks);
      losses[i] = std::log(all.sum) + (all.maximum - all.chosen);
      if (hits != nullptr) hits[i] = all.chosen >= all.maximum ? A{1} : A{0};
      if (scale == nullptr) continue;
      const A factor = *scale / all.sum;
      for (std::int64_t j = 0; j < logits.columns; ++j)
        row[j] = exponential(row[j] - all.maximum) * factor;
      const std::int64_t target = targets[i] - first;
      if (target >= 0 && target < logits.columns) row[target] -= *scale;
    }
  });
}

template <class S>
void sharded_gradients_ref(Matrix<const Accumulation<S>> dlogits, Matrix<const S> h,
                           Matrix<const S> w, Matrix<S> dh, Matrix<Accumulation<S>> dw,
                           bool accumulate) {
  using A = Accumulation<S>;
  matmul(Factor<A>{dlogits, Transpose::no}, Factor<S>{w, Transpose::no}, dh, false);
  matmul(Factor<A>{dlogits, Transpose::yes}, Factor<S>{h, Transpose::no}, dw, accumulate);
}

#define STOWAGE_INSTANTIATE(S)                                                               \
  template void sharded_logits_ref(Matrix<const S>, Matrix<const S>, const std::int32_t*,    \
                                   std::int64_t, Matrix<Accumulation<S>>, Accumulation<S>*); \
  template void sharded_gradients_ref(Matrix<const Accumulation<S>>, Matrix<const S>,        \
                                      Matrix<const S>, Matrix<S>, Matrix<Accumulation<S>>, bool);
STOWAGE_INSTANTIATE(double)
STOWAGE_INSTANTIATE(float)
STOWAGE_INSTANTIATE(Bf16)
#undef STOWAGE_INSTANTIATE
template void lose_parts_ref(Matrix<float>, const std::int32_t*, std::int64_t, const float*, int,
                             const float*, float*, float*);
template void lose_parts_ref(Matrix<double>, const std::int32_t*, std::int64_t, const double*, int,
                             const double*, double*, double*);

}  // namespace stowage::kernels
