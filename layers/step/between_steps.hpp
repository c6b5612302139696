#pragma once

#include "execution/persistent.hpp"
#include "execution/program.hpp"
#include "layers/state/optimizer.hpp"
#include "layers/step/step.hpp"

namespace stowage::layers {

/// Output of record_weight_norms(), (2 + layers) accum: norms of the weights of the embedding, of
/// each layer of the whole model and of the head; of masters, if there are any.
inline constexpr const char* kWeightNorms = "weight_norms";

/// A program without inputs that runs between two steps, on what a rank holds of the state.
struct BetweenSteps {
  Program program{"between"};
  Tensor norms;  ///< kWeightNorms; none of the other
};

/// Norms of the weights, frozen ones too. Nothing is changed.
/// @param as record_training()
BetweenSteps record_weight_norms(const Model& model, const Optimizer& rule,
                                 const OptimizerConfig& optimizer,
                                 const execution::PersistentLayout& layout, const Sharing& sharing);

/// Weights that are trained and their averages change places, so that the next program that gathers
/// parameters computes with averages, in the storage type. Done twice it has changed nothing.
/// @param layout with averages; without masters storage is the type of sums
BetweenSteps record_ema_exchange(const Model& model, const OptimizerConfig& optimizer,
                                 const execution::PersistentLayout& layout, const Sharing& sharing);

}  // namespace stowage::layers
