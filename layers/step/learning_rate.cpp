#include "layers/step/learning_rate.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace stowage::layers {
namespace {

/// How much of the way from `begin` to `end` is done at `step`, in [0, 1].
double progress(std::int64_t step, std::int64_t begin, std::int64_t end) {
  if (end <= begin) return step >= end ? 1 : 0;
  const double done = static_cast<double>(step - begin) / static_cast<double>(end - begin);
  return std::clamp(done, 0.0, 1.0);
}

}  // namespace

double LearningRate::at(std::int64_t step) const {
  if (step < warmup_steps)
    return lr * static_cast<double>(step + 1) / static_cast<double>(warmup_steps);
  switch (shape) {
    case Shape::constant:
      return lr;
    case Shape::cosine: {
      const double done = progress(step, warmup_steps, decay_steps);
      return std::min(lr, min_lr + (lr - min_lr) * 0.5 * (1 + std::cos(std::numbers::pi * done)));
    }
    case Shape::wsd:
      return lr + (min_lr - lr) * progress(step, decay_steps - wsd_decay_steps, decay_steps);
  }
  return lr;
}

}  // namespace stowage::layers
