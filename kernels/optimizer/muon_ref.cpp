#include <algorithm>

#include "execution/host_loops.hpp"
#include "kernels/optimizer/muon_launch.hpp"

namespace stowage::kernels {

using execution::Accumulation;

namespace {

constexpr std::int64_t kElements = 8192;  // of a task

}  // namespace

template <class S>
void MuonMomentum::reference(const Operands<Pointers<S>>& o) const {
  using A = Accumulation<S>;
  const bool good = *o.step_ok != 0;
  const auto norm = static_cast<double>(*o.norm);
  const A factor = static_cast<A>(clip > 0 ? std::min(1.0, clip / (norm + 1e-6)) : 1.0);
  const A decay = static_cast<A>(momentum);
  const auto all = [&]<class M>(M) {
    for (const MomentumPointers<S, M>& piece : momentum_pointers<S, M>(*this, o))
      execution::host_for(piece.elements, kElements, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t i = begin; i < end; ++i) {
          if (!good) {
            piece.direction[i] = static_cast<S>(A{0});
            continue;
          }
          const A g = piece.gradient[i] * factor;
          const A m = decay * static_cast<A>(piece.m[i]) + g;
          piece.m[i] = static_cast<M>(m);
          piece.direction[i] = static_cast<S>(nesterov ? g + decay * m : m);
        }
      });
  };
  bf16_momentum ? all(execution::Bf16()) : all(A());
}

template <class S>
void MuonUpdate::reference(const Operands<Pointers<S>>& o) const {
  using A = Accumulation<S>;
  if (*o.step_ok == 0) return;
  for (const MuonPointers<S>& piece : muon_pointers<S>(*this, o)) {
    const A lr = piece.lr * o.schedule[0], decay = piece.decay * o.schedule[1];
    execution::host_for(piece.elements, kElements, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) {
        const A old = piece.master ? piece.master[i] : static_cast<A>(piece.parameter[i]);
        const A updated = old - lr * (static_cast<A>(piece.update[i]) + decay * old);
        if (piece.master) piece.master[i] = updated;
        piece.parameter[i] = static_cast<S>(updated);
      }
    });
  }
}

STOWAGE_REFERENCES(MuonMomentum)
STOWAGE_REFERENCES(MuonUpdate)

}  // namespace stowage::kernels
