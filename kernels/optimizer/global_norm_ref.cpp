#include <cmath>

#include "execution/host_loops.hpp"
#include "kernels/optimizer/global_norm.hpp"
#include "kernels/optimizer/norm_block.hpp"
#include "kernels/reduce.hpp"

namespace stowage::kernels {

template <class T>
void global_norm_ref(std::span<const std::span<const T>> gradients, T* norm, std::int32_t* step_ok,
                     double* workspace) {
  std::int64_t blocks = 0;
  for (const std::span<const T> gradient : gradients) {
    const auto count = static_cast<std::int64_t>(gradient.size());
    double* partials = workspace + blocks;
    execution::host_for(count, kNormBlock, [=](std::int64_t begin, std::int64_t end) {
      const T* g = gradient.data() + begin;
      partials[begin / kNormBlock] = ordered_sum<double>(end - begin, [=](std::int64_t i) {
        return static_cast<double>(g[i]) * static_cast<double>(g[i]);
      });
    });
    blocks += norm_blocks(count);
  }
  const double squares =
      ordered_sum<double>(blocks, [=](std::int64_t block) { return workspace[block]; });
  *norm = static_cast<T>(std::sqrt(squares));
  if (!std::isfinite(*norm)) *step_ok = 0;
}

template void global_norm_ref(std::span<const std::span<const float>>, float*, std::int32_t*,
                              double*);
template void global_norm_ref(std::span<const std::span<const double>>, double*, std::int32_t*,
                              double*);

}  // namespace stowage::kernels
