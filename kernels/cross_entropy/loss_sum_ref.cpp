#include "kernels/cross_entropy/loss_sum.hpp"
#include "kernels/reduce.hpp"

namespace stowage::kernels {

template <class T>
void loss_sum_ref(const T* losses, const std::int32_t* targets, std::int64_t tokens, T* sums,
                  bool accumulate) {
  // Loads without a condition: gcc before 12.4 mixes up the lanes of conditional ones (PR 114375).
  const T sum = ordered_sum<T>(tokens, [=](std::int64_t t) {
    const T loss = losses[t];
    return targets[t] >= 0 ? loss : T{0};
  });
  const auto count = ordered_sum<std::int64_t>(
      tokens, [=](std::int64_t t) { return std::int64_t{targets[t] >= 0}; });
  sums[0] = accumulate ? sums[0] + sum : sum;
  sums[1] = accumulate ? sums[1] + static_cast<T>(count) : static_cast<T>(count);
}

template void loss_sum_ref(const float*, const std::int32_t*, std::int64_t, float*, bool);
template void loss_sum_ref(const double*, const std::int32_t*, std::int64_t, double*, bool);

}  // namespace stowage::kernels
