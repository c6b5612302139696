#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "inputs/deck/deck.hpp"

namespace stowage::forecast {

/// "31.6 B": of counts people say billions, not giga.
std::string count_text(double count);

/// A deck's model in numbers that no machine changes.
struct ModelSize {
  double parameters = 0;
  double active = 0;           ///< parameters that a token meets: of the experts the top-k
  double flops_per_token = 0;  ///< forward and backward, in documents of a whole sequence

  /// A line.
  std::string text() const;
  void add_to(nlohmann::ordered_json& json) const;
};
ModelSize model_size(const inputs::Deck& deck);

/// What training takes at a predicted speed, on a machine and for tokens that may not be known.
struct TrainingCost {
  std::int64_t ranks = 1;
  double tokens_per_s = 0;  ///< of all ranks
  double mfu = 0;           ///< of machine.peak_flops_per_s; 0: not known
  double tokens = 0;        ///< 0: nobody asked
  double power_w = 0;       ///< machine.power_w; 0: not known

  double time_s() const { return tokens / tokens_per_s; }
  double gpu_hours() const { return static_cast<double>(ranks) * time_s() / 3600; }
  double energy_kwh() const { return gpu_hours() * power_w / 1000; }

  /// "1.21 M tokens/s, MFU 41.2 %"
  std::string speed_text() const;
  /// A line of days, GPU-hours and kWh; empty if nobody asked.
  std::string tokens_text() const;
  void add_to(nlohmann::ordered_json& json) const;
};

/// @param step_s of a step of the deck's batch on so many ranks
/// @param tokens of the whole training
TrainingCost training_cost(const inputs::Deck& deck, const ModelSize& model, std::int64_t ranks,
                           double step_s, double tokens);

/// "300e9", "300 B", "1T": how many tokens. @throws Error (exit 2) for anything else
double parse_tokens(const std::string& text);

}  // namespace stowage::forecast
