#include "kernels/step_sums/step_sums.hpp"

#include "execution/error.hpp"
#include "kernels/operands.hpp"
#include "kernels/step_sums/step_sums_element.hpp"

namespace stowage::kernels {

using execution::Dtype;
using execution::View;

namespace {

template <class T>
detail::StepValues<T> pack(std::span<const View> values) {
  detail::StepValues<T> packed;
  packed.first[0] = 0;
  for (const View& value : values) {
    packed.data[packed.tensors] = value.as<T>();
    packed.first[packed.tensors + 1] = packed.first[packed.tensors] + value.buffer().elements();
    ++packed.tensors;
  }
  return packed;
}

/// Calls `work(StepValues)` with the values' type.
template <class Work>
void with_values(std::string_view op, std::span<const View> values, const View& step_ok,
                 const View& sums, std::int64_t count, Work&& work) {
  const Operands operands(op);
  operands.check(step_ok, "step_ok", Dtype::int32, {1});
  operands.require(sums.dtype() == Dtype::fp64, "sums are fp64");
  operands.require(!values.empty() && values.size() <= static_cast<std::size_t>(kMostStepValues),
                   "there are no values, or more than have room");
  std::int64_t elements = kStepFlags;
  for (const View& value : values) {
    operands.require(value.dtype() == values.front().dtype(), "values differ in their dtype");
    elements += value.buffer().elements();
  }
  operands.require(elements == count, "sums have another number of elements than the values");
  execution::with_accumulation_type(values.front().dtype(),
                                    [&]<class T>() { work(pack<T>(values)); });
}

}  // namespace

void gather_sums(execution::Queue& queue, std::span<const View> values, const View& step_ok,
                 const View& sums, std::int64_t count) {
  with_values("gather_sums", values, step_ok, sums, count, [&]<class T>(detail::StepValues<T> all) {
    execution::parallel_for(
        queue, count,
        detail::GatherSums<T>{all, step_ok.as<const std::int32_t>(), sums.as<double>()});
  });
}

void spread_sums(execution::Queue& queue, const View& sums, std::int64_t count,
                 std::span<const View> values, const View& step_ok) {
  with_values("spread_sums", values, step_ok, sums, count, [&]<class T>(detail::StepValues<T> all) {
    execution::parallel_for(
        queue, count - 1,
        detail::SpreadSums<T>{sums.as<const double>(), all, step_ok.as<std::int32_t>()});
  });
}

execution::Cost step_sums_cost(std::int64_t count) {
  return {0, 16.0 * static_cast<double>(count)};
}

}  // namespace stowage::kernels
