#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "inputs/deck/section.hpp"

namespace stowage::forecast {

/// [checkpoint]
struct CheckpointConfig {
  enum class Copy : unsigned char { automatic, device, host, none };

  std::string directory;
  std::int64_t interval = 0;
  double interval_minutes = 0;
  Copy copy = Copy::automatic;
  std::int64_t host_budget_bytes = 0;
  bool may_put_off = false;
  std::string resume = "auto";
  bool allow_changes = false;
  std::int64_t keep_last = 2, keep_every = 0;
  std::int64_t export_interval = 0;
};

/// [execution]
struct ExecutionConfig {
  enum class Backend : unsigned char { automatic, host, cuda };

  Backend backend = Backend::automatic;
  std::int64_t delay_seed = 0;
  bool audit = false;
  int ring_slots = 3;
};

/// [validate]
struct ValidateConfig {
  enum class When : unsigned char { automatic, on, off };

  double val_loss_below = inputs::kInfinity;
  bool val_loss_falling = false;
  double loss_below = inputs::kInfinity;
  double grad_norm_below = inputs::kInfinity;
  std::int64_t most_skipped_steps = 1;
  bool bad_steps_again = true, own_norms = false;
  When finite_differences = When::automatic;
  bool replayed_step = true;
  std::int64_t state_digest_interval = 0;
};

void check(const CheckpointConfig& checkpoint, const inputs::Deck& deck);
void check(const ExecutionConfig& execution, const inputs::Deck& deck);

}  // namespace stowage::forecast

namespace stowage::inputs {

template <>
std::vector<Row<forecast::CheckpointConfig>> rows<forecast::CheckpointConfig>();
template <>
std::vector<Row<forecast::ExecutionConfig>> rows<forecast::ExecutionConfig>();
template <>
std::vector<Row<forecast::ValidateConfig>> rows<forecast::ValidateConfig>();

}  // namespace stowage::inputs
