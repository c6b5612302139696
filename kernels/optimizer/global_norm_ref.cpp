#include <algorithm>
#include <cmath>
#include <vector>

#include "execution/host_loops.hpp"
#include "kernels/optimizer/global_norm_launch.hpp"

namespace stowage::kernels {

namespace {

template <class T>
double sum_block(const NormPointers<T>& piece, std::int64_t at, std::int64_t elements) {
  double terms[kNormTerms] = {};
  const auto add = [&](std::int64_t first, std::int64_t count) {
    for (std::int64_t t = 0; t < count; ++t) {
      const std::int64_t i = at + first + t;
      const bool left_out = piece.out_begin <= i && i < piece.out_end;
      const double g = left_out ? 0 : static_cast<double>(piece.gradient[i]);
      terms[t] += g * g;
    }
  };
  const std::int64_t whole = elements - elements % kNormTerms;
  for (std::int64_t first = 0; first < whole; first += kNormTerms) add(first, kNormTerms);
  add(whole, elements - whole);
  double lanes[kNormLanes];
  for (std::int64_t lane = 0; lane < kNormLanes; ++lane) {
    const double* four = terms + 4 * lane;
    lanes[lane] = (four[0] + four[1]) + (four[2] + four[3]);
  }
  return fold_halves(lanes, kNormLanes);
}

}  // namespace

template <class S>
void NormPartials::reference(const Operands<Pointers<S>>& o) const {
  constexpr std::int64_t kBlocks = 8;  // of a task
  const auto add = [&]<class G>(G) {
    for (const NormPointers<G>& piece : norm_pointers<G, S>(*this, o))
      execution::host_for(piece.elements, kBlocks * kNormBlock,
                          [&](std::int64_t begin, std::int64_t end) {
                            for (std::int64_t at = begin; at < end; at += kNormBlock)
                              o.partials[piece.slot + at / kNormBlock] =
                                  sum_block(piece, at, std::min(kNormBlock, end - at));
                          });
  };
  gradient_type == execution::Dtype::bf16 ? add(execution::Bf16())
                                          : add(execution::Accumulation<S>());
}

template <class S>
void NormFinish::reference(const Operands<Pointers<S>>& o) const {
  std::vector<double> terms(kSlotTerms);
  for (std::int64_t slot = 0; slot < slots; ++slot) terms[slot % kSlotTerms] += o.partials[slot];
  std::size_t count = terms.size();
  while (count > 1) {
    const std::size_t group = std::min<std::size_t>(kSlotFold, count);
    for (std::size_t i = 0; i < count / group; ++i)
      terms[i] = fold_halves(&terms[i * group], static_cast<int>(group));
    count /= group;
  }
  *o.norm = static_cast<execution::Accumulation<S>>(std::sqrt(terms[0]));
  if (!std::isfinite(*o.norm)) *o.step_ok = 0;
}

STOWAGE_REFERENCES(NormPartials)
STOWAGE_REFERENCES(NormFinish)

}  // namespace stowage::kernels
