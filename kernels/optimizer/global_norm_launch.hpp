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
  std::int64_t elements = 0;
  std::int64_t slot = 0;                    ///< of its first block
  std::int64_t out_begin = 0, out_end = 0;  ///< elements of the piece that count as 0
};

template <class G, class S>
std::vector<NormPointers<G>> norm_pointers(const NormPartials& op,
                                           const NormPartials::Operands<Pointers<S>>& o) {
  std::vector<NormPointers<G>> all;
  for (const NormPartials::Piece& piece : op.pieces) {
    const auto in_piece = [&](std::int64_t element) {
      return std::clamp<std::int64_t>(element - piece.first, 0, piece.elements);
    };
    all.push_back({static_cast<const G*>(o.gradients[all.size()].gradient), piece.elements,
                   piece.slot + piece.first / kNormBlock, in_piece(piece.left_out.begin),
                   in_piece(piece.left_out.end)});
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

int launch_norm_finish(std::span<const double> partials, float* norm, std::int32_t* step_ok,
                       void* stream);

}  // namespace stowage::kernels::optimizer
