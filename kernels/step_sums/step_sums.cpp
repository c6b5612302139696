#include "kernels/step_sums/step_sums.hpp"

#include <numeric>

#include "kernels/step_sums/step_sums_element.hpp"

namespace stowage::kernels {

using execution::Queue;
using execution::View;

namespace {

/// Calls `work(StepValues)` with the values' type.
template <class Op, class Views, class Work>
void with_values(const Op& op, const Views& views, Work&& work) {
  check(op, views);
  execution::with_accumulation_type(execution::accumulation(op.storage), [&]<class T>() {
    detail::StepValues<T> packed;
    packed.first[0] = 0;
    for (const std::int64_t elements : op.elements.each) {
      packed.data[packed.tensors] = views.values[packed.tensors].value.template as<T>();
      packed.first[packed.tensors + 1] = packed.first[packed.tensors] + elements;
      ++packed.tensors;
    }
    work(packed);
  });
}

}  // namespace

std::int64_t StepElements::sums() const {
  return std::accumulate(each.begin(), each.end(), kStepFlags);
}

std::string StepElements::fault() const {
  return each.empty() || each.size() > static_cast<std::size_t>(kMostStepValues)
             ? "there are no values, or more than have room"
             : "";
}

void GatherSums::run(Queue& queue, const Operands<View>& views) const {
  with_values(*this, views, [&]<class T>(const detail::StepValues<T>& all) {
    execution::parallel_for(queue, elements.sums(),
                            detail::GatherSums<T>{all, views.step_ok.as<const std::int32_t>(),
                                                  views.sums.view.as<double>()});
  });
}

void SpreadSums::run(Queue& queue, const Operands<View>& views) const {
  with_values(*this, views, [&]<class T>(const detail::StepValues<T>& all) {
    execution::parallel_for(queue, elements.sums() - 1,
                            detail::SpreadSums<T>{views.sums.view.as<const double>(), all,
                                                  views.step_ok.as<std::int32_t>()});
  });
}

}  // namespace stowage::kernels
