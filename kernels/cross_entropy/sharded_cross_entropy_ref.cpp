#include <algorithm>
#include <cmath>

#include "execution/host_loops.hpp"
#include "kernels/blas.hpp"
#include "kernels/cross_entropy/sharded_cross_entropy.hpp"
#include "kernels/softmax.hpp"

namespace stowage::kernels {

using execution::Accumulation;

namespace {

constexpr std::int64_t kRowsPerBlock = 8;

/// Maximum and sum of exponentials of a row over all ranks, and its target's logit.
template <class A>
struct RowStats {
  A maximum, sum, chosen;
};

template <class A>
RowStats<A> merged(const A* stats, std::int64_t rows, std::int64_t row, std::int64_t ranks) {
  RowStats<A> all{stats[3 * row], A{0}, A{0}};
  for (std::int64_t r = 1; r < ranks; ++r)
    all.maximum = std::max(all.maximum, stats[3 * (r * rows + row)]);
  for (std::int64_t r = 0; r < ranks; ++r) {
    const A* one = stats + 3 * (r * rows + row);
    all.sum += one[1] * std::exp(one[0] - all.maximum);
    all.chosen += one[2];
  }
  return all;
}

/// Logits become their gradients if there is a scale; losses of rows.
template <class A>
void lose(Matrix<A> logits, const std::int32_t* targets, std::int64_t first, const A* stats,
          std::int64_t ranks, const A* scale, A* losses, A* hits, A z_coeff, A* z_losses) {
  execution::host_for(logits.rows, kRowsPerBlock, [=](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      A* row = logits.row(i);
      if (targets[i] < 0) {
        losses[i] = A{0};
        if (hits != nullptr) hits[i] = A{0};
        if (z_losses != nullptr) z_losses[i] = A{0};
        if (scale != nullptr) std::fill_n(row, logits.columns, A{0});
        continue;
      }
      const RowStats<A> all = merged(stats, logits.rows, i, ranks);
      const A log_sum = std::log(all.sum);
      losses[i] = log_sum + (all.maximum - all.chosen);
      if (hits != nullptr) hits[i] = all.chosen >= all.maximum ? A{1} : A{0};
      const A z = log_sum + all.maximum;
      if (z_losses != nullptr) z_losses[i] = z_coeff * z * z;
      if (scale == nullptr) continue;
      A factor = *scale / all.sum;
      if (z_losses != nullptr) factor *= 1 + 2 * z_coeff * z;
      for (std::int64_t j = 0; j < logits.columns; ++j)
        row[j] = exponential(row[j] - all.maximum) * factor;
      const std::int64_t target = targets[i] - first;
      if (target >= 0 && target < logits.columns) row[target] -= *scale;
    }
  });
}

}  // namespace

template <class S>
void ShardedLogits::reference(const Operands<Pointers<S>>& o) const {
  using A = Accumulation<S>;
  const Matrix<A> logits{o.logits, rows, vocabulary, vocabulary};
  matmul(Factor<S>{{o.h, rows, width, width}, Transpose::no},
         Factor<S>{{o.w, vocabulary, width, width}, Transpose::yes}, logits, false);
  execution::host_for(rows, kRowsPerBlock, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      const A* row = logits.row(i);
      const std::int64_t target = o.targets[i] - first;
      A* to = o.stats + 3 * i;
      to[0] = largest(row, vocabulary);
      to[1] = ordered_sum<A>(vocabulary, [row, maximum = to[0]](std::int64_t j) {
        return exponential(row[j] - maximum);
      });
      to[2] = target >= 0 && target < vocabulary ? row[target] : A{0};
    }
  });
}

template <class S>
void ShardedCrossEntropy::reference(const Operands<Pointers<S>>& o) const {
  using A = Accumulation<S>;
  const Matrix<A> logits{o.logits, rows, vocabulary, vocabulary};
  lose<A>(logits, o.targets, first, o.stats, ranks, o.scale, o.losses, o.hits,
          static_cast<A>(z_coeff), o.z_losses);
  if (!gradients) return;
  matmul(Factor<A>{logits, Transpose::no},
         Factor<S>{{o.w, vocabulary, width, width}, Transpose::no},
         Matrix<S>{o.dh, rows, width, width}, false);
  matmul(Factor<A>{logits, Transpose::yes}, Factor<S>{{o.h, rows, width, width}, Transpose::no},
         Matrix<A>{o.dw, vocabulary, width, width}, accumulate);
}

STOWAGE_REFERENCES(ShardedLogits)
STOWAGE_REFERENCES(ShardedCrossEntropy)

}  // namespace stowage::kernels
