#pragma once

#include <algorithm>
#include <array>

#include "kernels/operator.hpp"

namespace stowage::kernels {

/// Coefficients a, b, c of an odd polynomial of degree five, and how often it is applied.
struct NewtonSchulzOptions {
  std::array<double, 3> coefficients = {3.4445, -4.7750, 2.0315};
  int steps = 5;
};

/// Replaces matrices by nearly orthogonal ones with the same singular vectors, by Newton-Schulz
/// iterations (Jordan et al., https://kellerjordan.github.io/posts/muon):
///
///   X = x / (|x|_F + 1e-7);  steps times: A = X X^T,  X = (a I + b A + c A A) X;  x = scale * X
///
/// A has the smaller extent of a matrix: of one with more rows than columns A is X^T X, and stands
/// behind X. A and A A are symmetric: only their lower blocks are multiplied, the others are their
/// mirror images. Every product is rounded to the storage type, sums of squares are fp64. A matrix
/// gets the same bits however many are treated at once.
struct NewtonSchulz {
  static constexpr std::string_view kName = "newton_schulz";
  std::int64_t count, rows, columns;  ///< of each matrix
  NewtonSchulzOptions options;
  double scale;
  execution::Dtype storage;

  template <class T>
  struct Operands {
    RowsOfType<T, Storage> x;
    SumsOut<T> workspace;
  };
  void each(auto&& f, auto&... o) const {
    f(sum("x", true, storage, {count * rows * columns}).in_any_shape(), o.x...);
    f(workspace(workspace_bytes()), o.workspace...);
  }
  std::int64_t smaller() const { return std::min(rows, columns); }
  std::size_t workspace_bytes() const;
  std::string fault() const;
  STOWAGE_OPERATOR_MEMBERS;
};

/// FLOPs of one matrix.
double newton_schulz_flops(std::int64_t rows, std::int64_t columns, int steps);

}  // namespace stowage::kernels
