#pragma once

#include <cstdint>

namespace stowage::layers {

/// Learning rate over the steps of a run.
///
/// Linear warm-up to `lr`; then half a cosine to `min_lr` at `decay_steps` (arXiv 1608.03983), or
/// constant with a linear decay to `min_lr` over the last `wsd_decay_steps` before `decay_steps`
/// (warm-up, stable, decay: arXiv 2404.06395), or constant.
struct LearningRate {
  enum class Shape : unsigned char { cosine, wsd, constant };

  Shape shape = Shape::cosine;
  double lr = 3e-4;
  double min_lr = 3e-5;
  std::int64_t warmup_steps = 0;
  std::int64_t decay_steps = 0;
  std::int64_t wsd_decay_steps = 0;

  /// @param step 0 is the first step: with warm-up it has lr / warmup_steps
  double at(std::int64_t step) const;
};

}  // namespace stowage::layers
