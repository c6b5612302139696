#include <algorithm>
#include <cmath>

#include "execution/host_loops.hpp"
#include "kernels/optimizer/adamw_launch.hpp"
#include "kernels/optimizer/stochastic_rounding.hpp"

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

/// A first moment as it is stored, and as it was: by its scale, if it has one.
template <class A, class M>
A scaled(M m, [[maybe_unused]] A scale) {
  if constexpr (std::is_same_v<M, execution::E4m3>)
    return static_cast<A>(m) * scale;
  else
    return static_cast<A>(m);
}

/// An element after its update.
template <class A>
struct Updated {
  A parameter, m, v;
};

template <class S, class M, class G, class A>
void store(const AdamwPointers<S, M, G>& tensor, std::int64_t i, const Updated<A>& to,
           RoundingStream&, const execution::GlobalIndex&) {
  tensor.m[i] = static_cast<M>(to.m);
  tensor.v[i] = static_cast<M>(to.v);
  if (tensor.master) tensor.master[i] = to.parameter;
  tensor.parameter[i] = static_cast<S>(to.parameter);
}

template <class S, class G, class A>
void store(const AdamwPointers<S, execution::E4m3, G>& tensor, std::int64_t i, const Updated<A>& to,
           RoundingStream& random, const execution::GlobalIndex& index) {
  const RoundingBits bits = random(index(i));
  tensor.v[i].bits = round_to_bf16(static_cast<float>(to.v), bits.v);
  const A root = std::sqrt(static_cast<A>(tensor.v[i]));
  const A ratio = root > 0 ? to.m / root * A{kMomentScale} : A{0};
  tensor.m[i].bits = round_to_e4m3(static_cast<float>(ratio), bits.m);
  if constexpr (std::is_same_v<S, execution::Bf16>)
    tensor.parameter[i].bits = round_to_bf16(to.parameter, bits.parameter);
  else
    tensor.parameter[i] = to.parameter;
}

template <class S, class M, class G>
void update(const AdamwPointers<S, M, G>& tensor, const AdamwStep<Accumulation<S>>& step,
            const Adamw::Piece& piece, std::uint64_t key) {
  using A = Accumulation<S>;
  constexpr std::int64_t kElements = 8192;
  execution::host_for(tensor.elements, kElements, [&](std::int64_t begin, std::int64_t end) {
    const A decay = tensor.decay * step.weight_decay, lr = tensor.lr * step.lr;
    RoundingStream random(key, piece.stream);
    for (std::int64_t i = begin; i < end; ++i) {
      const A g = static_cast<A>(tensor.gradient[i]) * step.clip_factor;
      const A old_v = static_cast<A>(tensor.v[i]);
      const A old_m = scaled(tensor.m[i], std::sqrt(old_v) / A{kMomentScale});
      const A m = step.beta1 * old_m + (A{1} - step.beta1) * g;
      const A v = step.beta2 * old_v + (A{1} - step.beta2) * g * g;
      const A old = tensor.master ? tensor.master[i] : static_cast<A>(tensor.parameter[i]);
      const A direction =
          m * step.correction1 / (std::sqrt(v * step.correction2) + step.eps) + decay * old;
      store(tensor, i, Updated<A>{old - lr * direction, m, v}, random, piece.index);
    }
  });
}

}  // namespace

template <class S>
void Adamw::reference(const Operands<Pointers<S>>& o) const {
  if (*o.step_ok == 0) return;
  const auto step = make_step(o.schedule, *o.step, *o.norm, clip, options);
  with_adamw_types<Accumulation<S>>(*this, [&]<class M, class G>(M, G) {
    const std::vector<AdamwPointers<S, M, G>> tensors = adamw_pointers<S, M, G>(*this, o);
    for (std::size_t i = 0; i < tensors.size(); ++i)
      update(tensors[i], step, pieces[i], RoundingStream::key(seed, *o.step));
  });
}

STOWAGE_REFERENCES(Adamw)

}  // namespace stowage::kernels
