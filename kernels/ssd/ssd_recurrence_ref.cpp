#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/ssd/ssd.hpp"

namespace stowage::kernels {

using execution::Accumulation;

namespace {

// Step size of one token, and what it leaves of the state before it.
template <class A>
struct Step {
  A dt, decay;
};

template <class S>
Step<Accumulation<S>> step_of(const SsdShape& shape, const SsdInputs<Pointers<S>>& inputs,
                              std::int64_t t, std::int64_t head) {
  using A = Accumulation<S>;
  const A raw = static_cast<A>(inputs.dt(t, head)) + static_cast<A>(inputs.dt_bias[head]);
  const A softplus = std::max(raw, A{0}) + std::log1p(std::exp(-std::abs(raw)));
  const A dt =
      std::min(std::max(softplus, static_cast<A>(shape.dt_min)), static_cast<A>(shape.dt_max));
  if (t > 0 && inputs.seq_idx[t] != inputs.seq_idx[t - 1]) return {dt, A{0}};
  return {dt, std::exp(-dt * std::exp(static_cast<A>(inputs.a_log[head])))};
}

}  // namespace

template <class S>
void SsdForward::recurrence(const Operands<Pointers<S>>& o) const {
  using A = Accumulation<S>;
  const std::int64_t size = shape.head_dim * shape.state;
  for (std::int64_t head = 0; head < shape.heads; ++head) {
    const std::int64_t group = head / (shape.heads / shape.groups);
    std::vector<A> state(static_cast<std::size_t>(size), A{0});
    if (o.inputs.initial_state != nullptr)
      std::copy_n(o.inputs.initial_state + head * size, size, state.begin());
    A total{1};
    for (std::int64_t t = 0; t < tokens; ++t) {
      const auto [dt, decay] = step_of(shape, o.inputs, t, head);
      total *= decay;
      const S* b = o.inputs.xbc.row(t) + shape.inner() + group * shape.state;
      const S* c = b + shape.shared();
      for (std::int64_t p = 0; p < shape.head_dim; ++p) {
        const A x = static_cast<A>(o.inputs.xbc(t, head * shape.head_dim + p));
        A* h = state.data() + p * shape.state;
        A sum = static_cast<A>(o.inputs.d[head]) * x;
        for (std::int64_t s = 0; s < shape.state; ++s) {
          h[s] = decay * h[s] + dt * x * static_cast<A>(b[s]);
          sum += h[s] * static_cast<A>(c[s]);
        }
        o.y[(t * shape.heads + head) * shape.head_dim + p] = static_cast<S>(sum);
      }
    }
    if (o.final_state != nullptr) std::ranges::copy(state, o.final_state + head * size);
    if (o.total_decay != nullptr) o.total_decay[head] = total;
  }
}

template void SsdForward::recurrence(const Operands<Pointers<double>>& o) const;

}  // namespace stowage::kernels
