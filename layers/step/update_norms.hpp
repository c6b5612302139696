#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>

#include "layers/step/update.hpp"

namespace stowage::layers {

/// kUpdateSquares: weights are kept before each op that writes some of them and compared behind it,
/// so what is kept is a window's, in memory that activations have left.
class UpdateNorms {
 public:
  /// @param asked if 0, nothing is kept or compared  @param sums fp64, of which slots [0, blocks)
  /// take a sum of squares for each block of the model
  UpdateNorms(Recorder& recorder, Tensor asked, Tensor sums, std::int64_t blocks);

  /// A parameter whose changes this rank answers for.
  /// @param first_block of its sums  @param left_out of its elements; another rank answers for them
  void add(const std::string& name, std::int64_t elements, std::int64_t first_block,
           execution::Range left_out);
  /// Elements of a window of states that are on the device.
  std::int64_t window_elements(const OptimizerConfig& config) const;
  /// Before the op of a window, and behind it.
  void keep(const ParameterUpdate& window);
  void square(const ParameterUpdate& window);
  /// @param parts slots of the embedding, of each layer and of the head
  void finish(std::span<const execution::Range> parts) const;

 private:
  struct Piece {
    std::int64_t first_block;
    execution::Range left_out;
  };

  /// Calls body(one, piece, where) for what this rank answers for of a window, and where it is
  /// kept: whole blocks apart. @return elements that are kept
  template <class Body>
  std::int64_t for_each(const ParameterUpdate& window, Body&& body) const;

  Recorder& recorder_;
  Tensor asked_, sums_;
  std::int64_t blocks_;
  std::map<std::string, Piece> pieces_;
  std::int64_t left_ = 0;  ///< elements of these that no op has written yet
  Tensor kept_;            ///< of the window whose op comes next
};

}  // namespace stowage::layers
