#pragma once

#include <cstdint>
#include <span>

#include "execution/op.hpp"

namespace stowage::kernels {

/// Elements behind the values in `sums`: how many ranks have step_ok 0, 1, and 2.
inline constexpr std::int64_t kStepFlags = 3;

/// Most tensors whose values are gathered.
inline constexpr int kMostStepValues = 120;

/// sums (count) fp64 = the elements of `values`, one tensor behind the other, then kStepFlags
/// words: step_ok is 0, 1, 2, each as 0 or 1, which add up over ranks.
/// @param values all fp32 or all fp64  @param step_ok (1) int32, 0 to kStepFlags
/// @param count elements of all values and kStepFlags; sums has as many
void gather_sums(execution::Queue& queue, std::span<const execution::View> values,
                 const execution::View& step_ok, const execution::View& sums, std::int64_t count);

/// The way back: values from sums, rounded to their type; step_ok (1) int32 becomes the least that
/// any rank had.
void spread_sums(execution::Queue& queue, const execution::View& sums, std::int64_t count,
                 std::span<const execution::View> values, const execution::View& step_ok);

execution::Cost step_sums_cost(std::int64_t count);

}  // namespace stowage::kernels
