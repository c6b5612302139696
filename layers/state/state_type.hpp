#pragma once

#include "layers/recording/parameters.hpp"

namespace stowage::layers {

/// Of the optimizer's states; masters have the type of sums.
struct StateType {
  execution::Dtype dtype = execution::Dtype::fp32;  ///< bf16, or fp32 for the type of sums

  execution::Dtype of(Precision precision) const {
    return dtype == execution::Dtype::bf16 ? dtype : precision.accumulation();
  }
};

}  // namespace stowage::layers
