#include <cmath>

#include "execution/host_loops.hpp"
#include "kernels/optimizer/global_norm.hpp"
#include "kernels/reduce.hpp"

namespace stowage::kernels {

template <class T>
void norm_partials_ref(const NormPointers<T>& piece) {
  execution::host_for(piece.elements, kNormBlock, [=](std::int64_t begin, std::int64_t end) {
    const T* g = piece.gradient + begin;
    piece.partials[begin / kNormBlock] = ordered_sum<double>(end - begin, [=](std::int64_t i) {
      return static_cast<double>(g[i]) * static_cast<double>(g[i]);
    });
  });
}

template <class T>
void norm_finish_ref(const double* partials, std::int64_t blocks, T* norm, std::int32_t* step_ok,
                     double* chunks) {
  execution::host_for(blocks, kNormChunk, [=](std::int64_t begin, std::int64_t end) {
    chunks[begin / kNormChunk] =
        ordered_sum<double>(end - begin, [=](std::int64_t i) { return partials[begin + i]; });
  });
  const double squares =
      ordered_sum<double>(norm_chunks(blocks), [=](std::int64_t i) { return chunks[i]; });
  *norm = static_cast<T>(std::sqrt(squares));
  if (!std::isfinite(*norm)) *step_ok = 0;
}

template void norm_partials_ref(const NormPointers<float>&);
template void norm_partials_ref(const NormPointers<double>&);
template void norm_finish_ref(const double*, std::int64_t, float*, std::int32_t*, double*);
template void norm_finish_ref(const double*, std::int64_t, double*, std::int32_t*, double*);

}  // namespace stowage::kernels
