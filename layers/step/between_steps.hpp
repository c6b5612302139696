#pragma once

#include "execution/persistent.hpp"
#include "execution/program.hpp"
#include "layers/step/step.hpp"

namespace stowage::layers {

/// A program without inputs that runs between two steps, on what a rank holds of the state.
struct BetweenSteps {
  Program program{"between"};
};

/// Weights that are trained and their averages change places, so that the next program that gathers
/// parameters computes with averages, in the storage type. Done twice it has changed nothing.
/// @param layout with averages; without masters storage is the type of sums
BetweenSteps record_ema_exchange(const Model& model, const OptimizerConfig& optimizer,
                                 const execution::PersistentLayout& layout, const Sharing& sharing);

}  // namespace stowage::layers
