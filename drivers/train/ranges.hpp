#pragma once

#include <memory>
#include <vector>

#include "drivers/common/machine.hpp"
#include "execution/observer.hpp"
#include "training/trainer.hpp"

namespace stowage::drivers {

/// On a GPU, marks every op of every program for timeline tools as long as it exists.
class Ranges {
 public:
  Ranges(const Machine& machine, training::Trainer& trainer);
  Ranges(const Ranges&) = delete;
  Ranges& operator=(const Ranges&) = delete;
  ~Ranges();

 private:
  struct Marked {
    execution::Executor* executor;
    std::unique_ptr<execution::Observer> observer;
  };
  std::vector<Marked> marked_;
};

}  // namespace stowage::drivers
