#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "execution/backend.hpp"
#include "inputs/deck/deck.hpp"
#include "run/step/trainer.hpp"

namespace stowage::run {

/// Compares gradients with finite differences of the loss, on the backend that a run is for: one
/// layer of each letter of its deck with the deck's forms, head dimensions, states and ratios of
/// heads, at most so wide and with so many heads and experts that it takes seconds; a few tokens of
/// two microbatches; in fp64 on the host, in fp32 on a GPU. Backward and evaluation are two
/// programs that share the forward operators alone, so what is wrong in backward shows.
///
/// Experts are chosen once and for all: a token that goes elsewhere would be a jump of the loss.
/// Losses of routers are left out, which evaluation does not have, and limits of time steps.
class GradientSlice {
 public:
  /// @param backend outlives this  @param storage fp64 (on the host alone) or fp32
  GradientSlice(const inputs::Deck& deck, execution::Backend& backend, execution::Dtype storage);
  /// The widest that a backend has.
  static execution::Dtype storage(const execution::Backend& backend);

  /// Arithmetic of the whole comparison for a deck, roughly, in FLOP.
  static double flops(const inputs::Deck& deck);

  struct Finding {
    double error = 0;       ///< the largest of all parameters, over its tolerance: passes up to 1
    std::string parameter;  ///< which has it
    int parameters = 0;     ///< compared
    std::string how;        ///< pattern, dtype and tolerance, for people
  };

  /// Computes the gradients: one step that changes no parameter.
  void backward();
  /// For each parameter the central differences of fourth order along one direction against the
  /// gradient's product with it. The direction is the sum of two unit vectors: the gradient's own,
  /// so that the product is large, and a random one, so that a part that is missing shows.
  Finding compare();

  /// A parameter or gradient as doubles, and back.
  std::vector<double> read(const std::string& name);
  void write(const std::string& name, const std::vector<double>& values);

 private:
  double loss();
  double error_of(const layers::Parameter& parameter);
  void stage_batch(execution::Executor& executor, const layers::StepShape& shape,
                   const layers::StackedInputs& inputs);
  void freeze_routing();

  Trainer trainer_;
  double targets_ = 0;  ///< counted in the batch
  double loss_ = 0;     ///< at the start, per target
};

}  // namespace stowage::run
