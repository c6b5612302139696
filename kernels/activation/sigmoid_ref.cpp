#include "execution/host_loops.hpp"
#include "kernels/activation/sigmoid.hpp"
#include "kernels/silu.hpp"

namespace stowage::kernels {

using execution::Accumulation;

namespace {

constexpr std::int64_t kElements = 4096;

}  // namespace

template <class S>
void SigmoidGateForward::reference(const Operands<Pointers<S>>& o) const {
  using A = Accumulation<S>;
  execution::host_for(rows * columns, kElements, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i)
      o.y[i] = static_cast<S>(static_cast<A>(o.x[i]) * sigmoid(static_cast<A>(o.gate[i])));
  });
}

template <class S>
void SigmoidGateBackward::reference(const Operands<Pointers<S>>& o) const {
  using A = Accumulation<S>;
  execution::host_for(rows * columns, kElements, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      const A share = sigmoid(static_cast<A>(o.gate[i])), gradient = static_cast<A>(o.dy[i]);
      o.dgate[i] = static_cast<S>(gradient * static_cast<A>(o.x[i]) * share * (A{1} - share));
      o.dx[i] = static_cast<S>(gradient * share);
    }
  });
}

template <class S>
void SigmoidForward::reference(const Operands<Pointers<S>>& o) const {
  for (std::int64_t i = 0; i < rows; ++i) o.y[i] = sigmoid(o.x[i]);
}

template <class S>
void SigmoidBackward::reference(const Operands<Pointers<S>>& o) const {
  for (std::int64_t i = 0; i < rows; ++i)
    o.dx[i] = o.dy[i] * o.y[i] * (Accumulation<S>{1} - o.y[i]);
}

STOWAGE_REFERENCES(SigmoidForward)
STOWAGE_REFERENCES(SigmoidBackward)
STOWAGE_REFERENCES(SigmoidGateForward)
STOWAGE_REFERENCES(SigmoidGateBackward)

}  // namespace stowage::kernels
