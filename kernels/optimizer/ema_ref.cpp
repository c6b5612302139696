#include <type_traits>
#include <utility>

#include "execution/host_loops.hpp"
#include "kernels/optimizer/ema_launch.hpp"

namespace stowage::kernels {

using execution::Accumulation;

namespace {

constexpr std::int64_t kElements = 8192;  // of a task

}  // namespace

template <class S>
void Ema::reference(const Operands<Pointers<S>>& o) const {
  using A = Accumulation<S>;
  if (*o.step_ok == 0) return;
  const A rest = static_cast<A>(1 - decay);
  const auto all = [&]<class W>(W) {
    for (const EmaPointers<W, A>& piece : ema_pointers<W, S>(*this, o))
      execution::host_for(piece.elements, kElements, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t i = begin; i < end; ++i)
          piece.ema[i] += rest * (static_cast<A>(piece.weight[i]) - piece.ema[i]);
      });
  };
  has_master ? all(A()) : all(S());
}

template <class S>
void ExchangeEma::reference(const Operands<Pointers<S>>& o) const {
  for (const ExchangePointers<S>& piece : exchange_pointers<S>(*this, o))
    execution::host_for(piece.elements, kElements, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) {
        if (piece.master != nullptr) {
          std::swap(piece.master[i], piece.ema[i]);
          piece.parameter[i] = static_cast<S>(piece.master[i]);
        } else if constexpr (std::is_same_v<S, Accumulation<S>>) {
          std::swap(piece.parameter[i], piece.ema[i]);
        }
      }
    });
}

STOWAGE_REFERENCES(Ema)
STOWAGE_REFERENCES(ExchangeEma)

}  // namespace stowage::kernels
