#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/optimizer/global_norm.hpp"

namespace stowage::kernels {

/// A piece in memory.
template <class T>
struct NormPointers {
  const T* gradient = nullptr;
  const T* before = nullptr;  ///< what is subtracted from it, of a change
  std::int64_t elements = 0;
  std::int64_t slot = 0;                    ///< of its first block
  std::int64_t out_begin = 0, out_end = 0;  ///< elements of the piece that count as 0
};

template <class G>
NormPointers<G> norm_pointers(const NormPartials::Piece& piece, const void* gradient,
                              const void* before) {
  const auto in_piece = [&](std::int64_t element) {
    return std::clamp<std::int64_t>(element - piece.first, 0, piece.elements);
  };
  return {static_cast<const G*>(gradient),
          static_cast<const G*>(before),
          piece.elements,
          piece.slot + piece.first / kNormBlock,
          in_piece(piece.left_out.begin),
          in_piece(piece.left_out.end)};
}

template <class G, class S>
std::vector<NormPointers<G>> norm_pointers(const NormPartials& op,
                                           const NormPartials::Operands<Pointers<S>>& o) {
  std::vector<NormPointers<G>> all;
  for (const NormPartials::Piece& piece : op.pieces)
    all.push_back(norm_pointers<G>(piece, o.gradients[all.size()].gradient, nullptr));
  return all;
}

template <class W, class S>
std::vector<NormPointers<W>> norm_pointers(const ChangePartials& op,
                                           const ChangePartials::Operands<Pointers<S>>& o) {
  std::vector<NormPointers<W>> all;
  for (const NormPartials::Piece& piece : op.pieces) {
    const auto& [weight, before] = o.tensors[all.size()];
    all.push_back(norm_pointers<W>(piece, weight, before));
  }
  return all;
}

}  // namespace stowage::kernels

/// The launches of the norm's kernels on device memory, behind the operators' checks. `stream` is a
/// cudaStream_t, the result a cudaError_t.
namespace stowage::kernels::optimizer {

/// G is float or Bf16.
template <class G>
int launch_norm_partials(std::span<const NormPointers<G>> pieces, double* partials, void* stream);

/// W is float or Bf16.  @param asked in device memory
template <class W>
int launch_change_partials(std::span<const NormPointers<W>> pieces, const std::int32_t* asked,
                           double* partials, void* stream);

int launch_part_sums(std::span<const execution::Range> parts, const double* partials, double* sums,
                     void* stream);

int launch_norm_finish(std::span<const double> partials, float* norm, std::int32_t* step_ok,
                       void* stream);

}  // namespace stowage::kernels::optimizer
