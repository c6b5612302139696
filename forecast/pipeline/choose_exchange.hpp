#pragma once

#include <optional>
#include <vector>

#include "forecast/pipeline/pipeline_plan.hpp"

namespace stowage::forecast {

/// What a layer whose ranks can exchange in several ways is expected to take in each of them:
/// forward and backward of one microbatch, one op after the other, on the busiest rank.
template <class Choice>
struct LayerForecast {
  using Exchange = Choice;

  struct Form {
    Exchange exchange = Exchange::automatic;
    double compute_s = 0;
    double exchange_s = 0;
    double bytes = 0;  ///< that a rank sends or receives, as the ops' costs say

    double time_s() const { return compute_s + exchange_s; }
  };
  std::vector<Form> forms;  ///< those that are possible, and that the deck leaves open
  Exchange chosen = Exchange::automatic;
};

/// Of attention by ranks that share sequences.
using ExchangeForecast = LayerForecast<layers::ModelConfig::Attention::Exchange>;
/// Of experts that ranks share.
using ExpertForecast = LayerForecast<layers::ModelConfig::Moe::Exchange>;

/// Records the layer in each form that the deck leaves open and adds up its ops' predicted times;
/// the quicker form is chosen, heads if they are even. Every rank finds the same. None if no ranks
/// share sequences, or the model has no attention.
/// @throws Error (exit 2) if the deck asks for heads and they cannot be exchanged
std::optional<ExchangeForecast> choose_exchange(const PipelineInputs& options);

/// The same of experts, with the room that options.step gives them: the quicker form is chosen,
/// gathering if they are even. None if no ranks share experts, or the model has none.
std::optional<ExpertForecast> choose_expert_exchange(const PipelineInputs& options);

}  // namespace stowage::forecast
