#pragma once

#include <memory>
#include <vector>

#include "execution/observer.hpp"
#include "run/machine/machine.hpp"
#include "run/step/trainer.hpp"

namespace stowage::run {

/// On a GPU, marks every op of every program for timeline tools as long as it exists.
class Ranges {
 public:
  Ranges(const Machine& machine, Trainer& trainer);
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

}  // namespace stowage::run
