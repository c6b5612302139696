#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "kernels/optimizer/move_pieces.hpp"
#include "layers/step/step.hpp"

namespace stowage::layers {

/// Rows of each of the matrices that a weight is, or that each expert's is.
std::vector<std::int64_t> matrix_rows(const Parameter& parameter, MuonConfig::Split split);

/// A matrix that its owner, a rank of the stage, makes orthogonal as a whole.
struct WholeMatrix {
  std::string parameter;
  std::int64_t first_row = 0;  ///< of all rows of the whole parameter
  std::int64_t rows = 0, columns = 0;
  int wave = 0;
  int owner = 0;

  std::int64_t elements() const { return rows * columns; }
};

/// What a rank has of a matrix: elements [first, first + elements) of its part of the parameter,
/// and where they lie in the matrix.
struct MatrixPiece {
  std::size_t matrix = 0;
  int rank = 0;
  std::int64_t first = 0, elements = 0;
  kernels::MovePieces::Side in_matrix;
};

/// The matrices of a stage, their owners, and which rank has what of them: the same on all ranks of
/// the stage (parallel::Group::replicated_gradients), of which each knows the others' parts.
///
/// Matrices come in waves of neighbouring parameters, so that what ranks exchange of one lies
/// beside the products of another. In each wave an owner is a rank that has some of the matrix, the
/// one with the least work so far, of the largest matrices first.
class WholeMatrices {
 public:
  /// @param rule the one that needs them  @param wave_elements after which a wave is closed
  WholeMatrices(const Model& model, const execution::PersistentLayout& layout,
                const Sharing& sharing, const Optimizer& rule, const OptimizerConfig& config,
                std::int64_t wave_elements);

  const std::vector<WholeMatrix>& all() const { return matrices_; }
  int waves() const { return waves_; }
  /// Pieces of all ranks, in the order of matrices.
  const std::vector<MatrixPiece>& pieces() const { return pieces_; }
  /// Of those with the same elements one: what its owner gets of a matrix.
  const std::vector<MatrixPiece>& sources() const { return sources_; }

 private:
  void add_matrices(const Parameter& parameter, MuonConfig::Split split);
  /// @param parameter as the rank has it  @param held elements of its part whose states it has
  void add_pieces(std::size_t matrix, int rank, const Parameter& parameter, execution::Range held);
  void choose_owners(int ranks, const kernels::NewtonSchulzOptions& options);
  void choose_sources();

  std::vector<WholeMatrix> matrices_;
  int waves_ = 0;
  std::vector<MatrixPiece> pieces_, sources_;
};

}  // namespace stowage::layers
