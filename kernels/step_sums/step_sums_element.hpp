#pragma once

#include <cstdint>

#include "execution/parallel_for.hpp"
#include "kernels/step_sums/step_sums.hpp"

/// The work on element i of the sums, written once for both backends.
namespace stowage::kernels::detail {

/// Where the values of each tensor begin among the sums. Passed by value to a launch.
template <class T>
struct StepValues {
  T* data[kMostStepValues];
  std::int64_t first[kMostStepValues + 1];
  int tensors = 0;

  STOWAGE_PORTABLE T& at(std::int64_t i) const {
    int tensor = 0;
    while (i >= first[tensor + 1]) ++tensor;
    return data[tensor][i - first[tensor]];
  }
  STOWAGE_PORTABLE std::int64_t count() const { return first[tensors]; }
};

template <class T>
struct GatherSums {
  StepValues<T> values;
  const std::int32_t* step_ok;
  double* sums;

  STOWAGE_PORTABLE void operator()(std::int64_t i) const {
    const std::int64_t flag = i - values.count();
    sums[i] = flag < 0 ? static_cast<double>(values.at(i)) : (*step_ok == flag ? 1.0 : 0.0);
  }
};

template <class T>
struct SpreadSums {
  const double* sums;
  StepValues<T> values;
  std::int32_t* step_ok;

  STOWAGE_PORTABLE void operator()(std::int64_t i) const {
    const std::int64_t count = values.count();
    if (i < count)
      values.at(i) = static_cast<T>(sums[i]);
    else if (i == count)
      *step_ok = least(sums + count);
  }

  /// The first flag that a rank has raised, or behind the last.
  STOWAGE_PORTABLE static std::int32_t least(const double* flags) {
    std::int32_t flag = 0;
    while (flag < kStepFlags && flags[flag] == 0) ++flag;
    return flag;
  }
};

}  // namespace stowage::kernels::detail
