#pragma once

#include <optional>
#include <vector>

#include "layers/prospect.hpp"

namespace stowage::layers {

/// What an attention layer of ranks that share sequences is expected to take, by what they
/// exchange.
struct ExchangeForecast {
  using Exchange = ModelConfig::Attention::Exchange;

  /// Forward and backward of one microbatch, one op after the other, on the busiest rank.
  struct Form {
    Exchange exchange = Exchange::keys;
    double compute_s = 0;
    double exchange_s = 0;
    double bytes = 0;  ///< that a rank sends or receives, as the ops' costs say

    double time_s() const { return compute_s + exchange_s; }
  };
  std::vector<Form> forms;  ///< those that the model's heads allow
  Exchange chosen = Exchange::keys;
};

/// Records the layer in each form that the deck leaves open and adds up its ops' predicted times;
/// the quicker form is chosen, heads if they are even. Every rank finds the same. None if no ranks
/// share sequences, or the model has no attention.
/// @throws Error (exit 2) if the deck asks for heads and they cannot be exchanged
std::optional<ExchangeForecast> forecast_exchange(const ProspectOptions& options);

}  // namespace stowage::layers
