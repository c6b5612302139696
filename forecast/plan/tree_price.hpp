#pragma once

#include <optional>
#include <string>

#include "forecast/plan/trainer_plan.hpp"

namespace stowage::forecast {

/// What `run.same_bits = "ranks"` takes of a rank, beyond sums of microbatches in place and of
/// ranks in their order.
struct TreePrice {
  double kept_bytes = 0;      ///< of partial gradients
  double moved_bytes = 0;     ///< through memory, by adding them and clearing
  double adding_s = 0;        ///< predicted
  int nodes = 1;              ///< partial sums of a gradient that a rank sends
  std::int64_t leaves = 0;    ///< of the tree …
  int leaf_microbatches = 1;  ///< … and microbatches of each
  double wire_bytes = 0;      ///< of sums over ranks

  /// "tree of 8 leaves, 3 microbatches each: 3.2 GiB of partial gradients, …"
  /// @param timed the plan is of a machine whose rates are known
  std::string text(bool timed) const;
};

/// None if the bits of a run are those of its layout.
std::optional<TreePrice> tree_price(const TrainerPlan& run);

}  // namespace stowage::forecast
