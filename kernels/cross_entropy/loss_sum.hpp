#pragma once

#include <cstdint>

#include "execution/op.hpp"
#include "kernels/matrix.hpp"

namespace stowage::kernels {

/// sums = {sum of the losses, number of counted tokens}, over tokens with target >= 0, in a fixed
/// order. losses (n) fp32 or fp64, targets (n) int32, sums (2) of the losses' dtype: stored or,
/// with `accumulate`, added to.
void loss_sum(execution::Queue& queue, const execution::View& losses,
              const execution::View& targets, const execution::View& sums, bool accumulate);

execution::Cost loss_sum_cost(std::int64_t tokens, execution::Dtype dtype);

/// Host reference; T is float or double.
template <class T>
void loss_sum_ref(const T* losses, const std::int32_t* targets, std::int64_t tokens, T* sums,
                  bool accumulate);

}  // namespace stowage::kernels
