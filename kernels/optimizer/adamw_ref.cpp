#include <algorithm>
#include <cmath>

#include "execution/host_loops.hpp"
#include "kernels/optimizer/adamw_launch.hpp"

namespace stowage::kernels {

using execution::Accumulation;

namespace {

template <class A>
AdamwStep<A> make_step(const A* schedule, std::int64_t step, A norm, double clip,
                       const AdamwOptions& options) {
  const auto power = static_cast<double>(step + 1);
  const double factor = clip > 0 ? std::min(1.0, clip / (static_cast<double>(norm) + 1e-6)) : 1.0;
  return {.lr = schedule[0],
          .weight_decay = schedule[1],
          .clip_factor = static_cast<A>(factor),
          .beta1 = static_cast<A>(options.beta1),
          .beta2 = static_cast<A>(options.beta2),
          .eps = static_cast<A>(options.eps),
          .correction1 = static_cast<A>(1 / (1 - std::pow(options.beta1, power))),
          .correction2 = static_cast<A>(1 / (1 - std::pow(options.beta2, power)))};
}

template <class S, class M>
void update(const AdamwPointers<S, M>& tensor, const AdamwStep<Accumulation<S>>& step) {
  using A = Accumulation<S>;
  constexpr std::int64_t kElements = 8192;
  execution::host_for(tensor.elements, kElements, [&](std::int64_t begin, std::int64_t end) {
    const A decay = tensor.decay * step.weight_decay, lr = tensor.lr * step.lr;
    for (std::int64_t i = begin; i < end; ++i) {
      const A g = tensor.gradient[i] * step.clip_factor;
      const A m = step.beta1 * static_cast<A>(tensor.m[i]) + (A{1} - step.beta1) * g;
      const A v = step.beta2 * static_cast<A>(tensor.v[i]) + (A{1} - step.beta2) * g * g;
      const A old = tensor.master ? tensor.master[i] : static_cast<A>(tensor.parameter[i]);
      const A direction =
          m * step.correction1 / (std::sqrt(v * step.correction2) + step.eps) + decay * old;
      const A updated = old - lr * direction;
      tensor.m[i] = static_cast<M>(m);
      tensor.v[i] = static_cast<M>(v);
      if (tensor.master) tensor.master[i] = updated;
      tensor.parameter[i] = static_cast<S>(updated);
    }
  });
}

}  // namespace

template <class S>
void Adamw::reference(const Operands<Pointers<S>>& o) const {
  if (*o.step_ok == 0) return;
  const auto step = make_step(o.schedule, *o.step, *o.norm, clip, options);
  const auto all = [&]<class M>(M) {
    for (const AdamwPointers<S, M>& tensor : adamw_pointers<S, M>(*this, o)) update(tensor, step);
  };
  bf16_moments ? all(execution::Bf16()) : all(Accumulation<S>());
}

STOWAGE_REFERENCES(Adamw)

}  // namespace stowage::kernels
