#pragma once

#include <vector>

#include "inputs/deck/section.hpp"
#include "kernels/optimizer/guard.hpp"
#include "layers/state/state_type.hpp"
#include "layers/step/learning_rate.hpp"
#include "layers/step/step.hpp"

namespace stowage::inputs {

// [optim]
template <>
std::vector<Row<layers::LearningRate>> rows<layers::LearningRate>();
template <>
std::vector<Row<layers::OptimizerChoice>> rows<layers::OptimizerChoice>();
template <>
std::vector<Row<layers::MuonConfig>> rows<layers::MuonConfig>();
template <>
std::vector<Row<layers::OptimizerConfig>> rows<layers::OptimizerConfig>();
template <>
std::vector<Row<layers::StateType>> rows<layers::StateType>();
template <>
std::vector<Row<kernels::SpikeRule>> rows<kernels::SpikeRule>();

}  // namespace stowage::inputs

namespace stowage::layers {

void check(const LearningRate& schedule, const inputs::Deck& deck);
void check(const StateType& type, const inputs::Deck& deck);
void check(const OptimizerConfig& config, const inputs::Deck& deck);

}  // namespace stowage::layers
