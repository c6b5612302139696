#include "kernels/moe/balance.hpp"

namespace stowage::kernels {

template <class A>
void expert_load_ref(std::int64_t experts, const std::int32_t* offsets, A* load, bool accumulate) {
  for (std::int64_t e = 0; e < experts; ++e)
    load[e] = static_cast<A>(offsets[e + 1] - offsets[e]) + (accumulate ? load[e] : A{0});
}

template <class A>
void expert_bias_update_ref(std::int64_t experts, const A* load, A* bias, double rate,
                            const std::int32_t* step_ok) {
  if (*step_ok == 0) return;
  A total{0};
  for (std::int64_t e = 0; e < experts; ++e) total += load[e];
  const A mean = total / static_cast<A>(experts);
  for (std::int64_t e = 0; e < experts; ++e) {
    const int sign = (load[e] < mean) - (load[e] > mean);
    bias[e] += static_cast<A>(rate) * static_cast<A>(sign);
  }
}

template void expert_load_ref(std::int64_t, const std::int32_t*, float*, bool);
template void expert_load_ref(std::int64_t, const std::int32_t*, double*, bool);
template void expert_bias_update_ref(std::int64_t, const float*, float*, double,
                                     const std::int32_t*);
template void expert_bias_update_ref(std::int64_t, const double*, double*, double,
                                     const std::int32_t*);

}  // namespace stowage::kernels
