#pragma once

#include <algorithm>
#include <array>
#include <vector>

#include "kernels/operator.hpp"

namespace stowage::kernels {

/// Coefficients a, b, c of an odd polynomial of degree five, and how often it is applied.
struct NewtonSchulzOptions {
  std::array<double, 3> coefficients = {3.4445, -4.7750, 2.0315};
  int steps = 5;
};

/// Matrices of one shape, one behind the other.
struct EqualMatrices {
  std::int64_t count, rows, columns;
  double scale = 1;  ///< of what they become

  std::int64_t elements() const { return count * rows * columns; }
  std::int64_t smaller() const { return std::min(rows, columns); }
  std::int64_t larger() const { return std::max(rows, columns); }
};

/// Replaces matrices by nearly orthogonal ones with the same singular vectors, by Newton-Schulz
/// iterations (Jordan et al., https://kellerjordan.github.io/posts/muon):
///
///   X = x / (|x|_F + 1e-7);  steps times: A = X X^T,  X = (a I + b A + c A A) X;  x = scale * X
///
/// A has the smaller extent of a matrix: of one with more rows than columns A is X^T X, and stands
/// behind X. A and A A are symmetric: only their lower blocks are multiplied, the others are their
/// mirror images. Every product is rounded to the storage type, sums of squares are fp64. On a
/// Hopper GPU bf16 matrices are iterated on A, in fp16, all of them in one launch
/// (newton_schulz_sm90.cu). A matrix gets the same bits whatever others are treated with it.
struct NewtonSchulz {
  static constexpr std::string_view kName = "newton_schulz";
  std::vector<EqualMatrices> matrices;
  NewtonSchulzOptions options;
  execution::Dtype storage;

  /// Of matrices of one shape.
  template <class T>
  struct Tensors {
    RowsOfType<T, Storage> x;
  };
  template <class T>
  struct Operands {
    ListOf<T, Tensors> matrices;
    SumsOut<T> workspace;
  };
  void each(auto&& f, auto&... o) const {
    for (std::size_t i = 0; i < matrices.size(); ++i)
      f(sum("x", true, storage, {matrices[i].elements()}).in_any_shape(), o.matrices[i].x...);
    f(workspace(workspace_bytes()), o.workspace...);
  }
  std::size_t workspace_bytes() const;
  std::string fault() const;
  STOWAGE_OPERATOR_MEMBERS;
};

/// FLOPs of one matrix of bf16.
double newton_schulz_flops(std::int64_t rows, std::int64_t columns,
                           const NewtonSchulzOptions& options);

}  // namespace stowage::kernels
