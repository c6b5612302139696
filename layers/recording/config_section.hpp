#pragma once

#include <vector>

#include "inputs/deck/section.hpp"
#include "layers/recording/config.hpp"

// Rows of [model]: those of a mixer stand in its room.
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
std::vector<Row<layers::ModelConfig::Mlp>> rows<layers::ModelConfig::Mlp>();
template <>
std::vector<Row<layers::ModelConfig::Moe>> rows<layers::ModelConfig::Moe>();

}  // namespace stowage::inputs

namespace stowage::layers {

/// All of [model], with the mixers that the pattern uses.
void check(const ModelConfig& model, const inputs::Deck& deck);
void check(const ModelConfig::Attention& attention, const inputs::Deck& deck);
void check(const ModelConfig::Mamba& mamba, const inputs::Deck& deck);
void check(const ModelConfig::Mlp& mlp, const inputs::Deck& deck);
void check(const ModelConfig::Moe& moe, const inputs::Deck& deck);

}  // namespace stowage::layers
