#include <algorithm>
#include <cmath>
#include <vector>

#include "execution/host_loops.hpp"
#include "kernels/optimizer/global_norm_launch.hpp"

namespace stowage::kernels {

namespace {

/// An element, or what it has changed by, in the type of sums.
template <class T>
double value_at(const NormPointers<T>& piece, std::int64_t i) {
  using A = execution::Accumulation<T>;
  const A value = static_cast<A>(piece.gradient[i]);
  return static_cast<double>(piece.before ? value - static_cast<A>(piece.before[i]) : value);
}

template <class T>
double sum_block(const NormPointers<T>& piece, std::int64_t at, std::int64_t elements) {
  double terms[kNormTerms] = {};
  const auto add = [&](std::int64_t first, std::int64_t count) {
    for (std::int64_t t = 0; t < count; ++t) {
      const std::int64_t i = at + first + t;
      const bool left_out = piece.out_begin <= i && i < piece.out_end;
      const double g = left_out ? 0 : value_at(piece, i);
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

double sum_slots(const double* partials, std::int64_t slots, std::size_t count) {
  std::vector<double> terms(count);
  for (std::int64_t slot = 0; slot < slots; ++slot)
    terms[static_cast<std::size_t>(slot) % count] += partials[slot];
  for (std::size_t left = count; left > 1;) {
    const std::size_t group = std::min<std::size_t>(kSlotFold, left);
    for (std::size_t i = 0; i < left / group; ++i)
      terms[i] = fold_halves(&terms[i * group], static_cast<int>(group));
    left /= group;
  }
  return terms[0];
}

template <class T>
void sum_blocks(const std::vector<NormPointers<T>>& pieces, double* partials) {
  constexpr std::int64_t kBlocks = 8;  // of a task
  for (const NormPointers<T>& piece : pieces)
    execution::host_for(piece.elements, kBlocks * kNormBlock,
                        [&](std::int64_t begin, std::int64_t end) {
                          for (std::int64_t at = begin; at < end; at += kNormBlock)
                            partials[piece.slot + at / kNormBlock] =
                                sum_block(piece, at, std::min(kNormBlock, end - at));
                        });
}

}  // namespace

template <class S>
void NormPartials::reference(const Operands<Pointers<S>>& o) const {
  const auto add = [&]<class G>(G) { sum_blocks(norm_pointers<G, S>(*this, o), o.partials); };
  gradient_type == execution::Dtype::bf16 ? add(execution::Bf16())
                                          : add(execution::Accumulation<S>());
}

template <class S>
void ChangePartials::reference(const Operands<Pointers<S>>& o) const {
  if (*o.asked == 0) return;
  const auto add = [&]<class W>(W) { sum_blocks(norm_pointers<W, S>(*this, o), o.partials); };
  has_master ? add(execution::Accumulation<S>()) : add(S());
}

template <class S>
void NormFinish::reference(const Operands<Pointers<S>>& o) const {
  const double sum = sum_slots(o.partials, slots, kSlotTerms);
  *o.norm = static_cast<execution::Accumulation<S>>(std::sqrt(sum));
  if (!std::isfinite(*o.norm)) *o.step_ok = 0;
}

template <class S>
void PartSums::reference(const Operands<Pointers<S>>& o) const {
  for (std::size_t i = 0; i < parts.size(); ++i)
    o.sums[i] = sum_slots(o.partials + parts[i].begin, parts[i].end - parts[i].begin, kPartTerms);
}

STOWAGE_REFERENCES(NormPartials)
STOWAGE_REFERENCES(ChangePartials)
STOWAGE_REFERENCES(NormFinish)
STOWAGE_REFERENCES(PartSums)

}  // namespace stowage::kernels
