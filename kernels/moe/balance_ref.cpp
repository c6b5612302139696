#include "kernels/moe/balance.hpp"

namespace stowage::kernels {

template <class S>
void ExpertLoad::reference(const Operands<Pointers<S>>& o) const {
  using A = execution::Accumulation<S>;
  for (std::int64_t e = 0; e < experts; ++e)
    o.load[e] = static_cast<A>(o.offsets[e + 1] - o.offsets[e]) + (accumulate ? o.load[e] : A{0});
}

template <class S>
void ExpertBiasUpdate::reference(const Operands<Pointers<S>>& o) const {
  using A = execution::Accumulation<S>;
  if (*o.step_ok == 0) return;
  A total{0};
  for (std::int64_t e = 0; e < experts; ++e) total += o.load[e];
  const A mean = total / static_cast<A>(experts);
  for (std::int64_t e = 0; e < experts; ++e) {
    const int sign = (o.load[e] < mean) - (o.load[e] > mean);
    o.bias[e] += static_cast<A>(rate) * static_cast<A>(sign);
  }
}

STOWAGE_REFERENCES(ExpertLoad)
STOWAGE_REFERENCES(ExpertBiasUpdate)

}  // namespace stowage::kernels
