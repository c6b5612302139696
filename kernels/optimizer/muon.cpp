#include "kernels/optimizer/muon.hpp"

#include "kernels/cost.hpp"
#include "kernels/launch.hpp"
#include "kernels/optimizer/muon_launch.hpp"

namespace stowage::kernels {

using execution::Cost;
using execution::Dtype;

template <class S>
int MuonMomentum::launch(const Operands<Pointers<S>>& o, void* stream) const {
  const auto with = [&]<class M>(M) {
    return optimizer::launch_momentum<S, M>(
        momentum_pointers<S, M>(*this, o),
        {o.norm, o.step_ok, clip, static_cast<float>(momentum), nesterov}, stream);
  };
  return bf16_momentum ? with(execution::Bf16()) : with(float());
}

Cost MuonMomentum::cost() const {
  const Dtype sums = execution::accumulation(storage);
  std::int64_t all = 0;
  for (const std::int64_t count : elements) all += count;
  return {5.0 * static_cast<double>(all), bytes(all, sums) + bytes(all, storage) +
                                              2 * bytes(all, bf16_momentum ? Dtype::bf16 : sums)};
}

template <class S>
int MuonUpdate::launch(const Operands<Pointers<S>>& o, void* stream) const {
  return optimizer::launch_muon<S>(muon_pointers<S>(*this, o), {o.schedule, o.step_ok}, stream);
}

// The update read; parameter or master read and written; with a master, parameter written.
Cost MuonUpdate::cost() const {
  std::int64_t all = 0;
  for (const Piece& piece : pieces) all += piece.elements;
  const double own = bytes(all, storage);
  return {4.0 * static_cast<double>(all),
          own + (has_master ? 2 * bytes(all, execution::accumulation(storage)) + own : 2 * own)};
}

STOWAGE_OPERATOR_RUN(MuonMomentum)
STOWAGE_OPERATOR_RUN(MuonUpdate)

}  // namespace stowage::kernels
