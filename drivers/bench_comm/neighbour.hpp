#pragma once

#include <memory>

#include "execution/backend.hpp"

namespace stowage::drivers {

/// Work of this GPU beside the collectives that are timed, as in a training step.
class Neighbour {
 public:
  virtual ~Neighbour() = default;

  /// Starts work for so long at least, as far as it is known how long it takes.
  virtual void start(double seconds) = 0;
  /// Waits for its end. @return when that was, by the backend's timed events
  virtual double end_s() = 0;
};

/// Products of a linear layer in bf16, on a compute queue of their own: 8192 x 4096 x 4096, random
/// data. CUDA only.
std::unique_ptr<Neighbour> overlapping_products(execution::Backend& backend);

}  // namespace stowage::drivers
