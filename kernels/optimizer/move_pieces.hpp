#pragma once

#include "kernels/operator.hpp"

namespace stowage::kernels {

/// Copies pieces of one tensor into another: parts of matrices that ranks have, into the matrices
/// or out of them. Every element of a piece has a place on both sides.
struct MovePieces {
  static constexpr std::string_view kName = "move_pieces";
  /// Element l is begin + l / width * stride + l % width: rows of `width`, cut out of rows of
  /// `stride`. A width of 0: begin + l.
  struct Side {
    std::int64_t begin = 0, width = 0, stride = 0;

    std::int64_t at(std::int64_t l) const {
      return begin + (width == 0 ? l : l / width * stride + l % width);
    }
  };
  /// Elements [first, first + elements).
  struct Piece {
    std::int64_t first = 0, elements = 0;
    Side from, to;
  };
  std::vector<Piece> pieces;
  std::int64_t from_elements, to_elements;
  bool beside;  ///< beside what an earlier op wrote; else all of `to` is written
  execution::Dtype storage;

  template <class T>
  struct Operands {
    InRows<T> from;
    OutRows<T> to;
  };
  void each(auto&& f, auto&... o) const {
    f(in("from", storage, {from_elements}).in_any_shape(), o.from...);
    f(sum("to", beside, storage, {to_elements}).in_any_shape(), o.to...);
  }
  std::string fault() const;
  STOWAGE_OPERATOR_MEMBERS;
};

}  // namespace stowage::kernels

/// The launch of its kernel. `stream` is a cudaStream_t, the result a cudaError_t.
namespace stowage::kernels::optimizer {

template <class S>
int launch_move_pieces(std::span<const MovePieces::Piece> pieces, const S* from, S* to,
                       void* stream);

}  // namespace stowage::kernels::optimizer
