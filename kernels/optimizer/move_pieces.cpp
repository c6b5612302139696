#include "kernels/optimizer/move_pieces.hpp"

#include <algorithm>

#include "execution/host_loops.hpp"
#include "kernels/cost.hpp"
#include "kernels/launch.hpp"

namespace stowage::kernels {
namespace {

/// Neighbours from element l on that are neighbours on this side.
std::int64_t run_of(const MovePieces::Side& side, std::int64_t l, std::int64_t most) {
  return side.width == 0 ? most : std::min(most, side.width - l % side.width);
}

bool within(const MovePieces::Side& side, const MovePieces::Piece& piece, std::int64_t elements) {
  return side.at(piece.first) >= 0 && side.at(piece.first + piece.elements - 1) < elements &&
         side.width <= side.stride;
}

}  // namespace

std::string MovePieces::fault() const {
  for (const Piece& piece : pieces)
    if (piece.elements < 1 || !within(piece.from, piece, from_elements) ||
        !within(piece.to, piece, to_elements))
      return fmt::format("a piece of {} elements from {} to {} is not within {} and {}",
                         piece.elements, piece.from.at(piece.first), piece.to.at(piece.first),
                         from_elements, to_elements);
  return {};
}

execution::Cost MovePieces::cost() const {
  std::int64_t elements = 0;
  for (const Piece& piece : pieces) elements += piece.elements;
  return {0, 2 * bytes(elements, storage)};
}

template <class S>
void MovePieces::reference(const Operands<Pointers<S>>& o) const {
  execution::host_for_each(static_cast<std::int64_t>(pieces.size()), [&](std::int64_t i) {
    const Piece& piece = pieces[static_cast<std::size_t>(i)];
    for (std::int64_t l = piece.first, end = l + piece.elements; l < end;) {
      const std::int64_t run = run_of(piece.from, l, run_of(piece.to, l, end - l));
      std::copy_n(o.from + piece.from.at(l), run, o.to + piece.to.at(l));
      l += run;
    }
  });
}

template <class S>
int MovePieces::launch(const Operands<Pointers<S>>& o, void* stream) const {
  return optimizer::launch_move_pieces<S>(pieces, o.from, o.to, stream);
}

STOWAGE_REFERENCES(MovePieces)
STOWAGE_OPERATOR_RUN(MovePieces)

}  // namespace stowage::kernels
