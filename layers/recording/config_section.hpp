#pragma once

#include <vector>

#include "inputs/deck/section.hpp"
#include "layers/recording/config.hpp"

// Rows of [model], and of what its products are computed in; those of a kind of layer stand in its
// *_kind.cpp.
namespace stowage::inputs {

template <>
std::vector<Row<layers::ModelConfig>> rows<layers::ModelConfig>();
template <>
std::vector<Row<layers::ModelConfig::Attention>> rows<layers::ModelConfig::Attention>();
template <>
std::vector<Row<kernels::RopeFrequencies>> rows<kernels::RopeFrequencies>();
template <>
std::vector<Row<layers::ModelConfig::Mamba>> rows<layers::ModelConfig::Mamba>();
template <>
std::vector<Row<layers::ModelConfig::GatedDelta>> rows<layers::ModelConfig::GatedDelta>();
template <>
std::vector<Row<layers::ModelConfig::Mlp>> rows<layers::ModelConfig::Mlp>();
template <>
std::vector<Row<layers::ModelConfig::Mtp>> rows<layers::ModelConfig::Mtp>();
template <>
std::vector<Row<layers::ModelConfig::Products>> rows<layers::ModelConfig::Products>();
template <>
std::vector<Row<layers::ModelConfig::Moe>> rows<layers::ModelConfig::Moe>();

}  // namespace stowage::inputs

namespace stowage::layers {

/// All of [model], with the kinds that the pattern uses.
void check(const ModelConfig& model, const inputs::Deck& deck);

}  // namespace stowage::layers
