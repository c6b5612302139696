#include "kernels/optimizer/keep_weights.hpp"

#include <algorithm>

#include "execution/host_loops.hpp"
#include "kernels/launch.hpp"
#include "kernels/optimizer/keep_weights_launch.hpp"

namespace stowage::kernels {

template <class S>
void KeepWeights::reference(const Operands<Pointers<S>>& o) const {
  if (*o.asked == 0) return;
  constexpr std::int64_t kElements = 8192;  // of a task
  const auto keep = [&]<class W>(W) {
    for (const KeptPointers<W>& piece : kept_pointers<W, S>(*this, o))
      execution::host_for(piece.elements, kElements, [&](std::int64_t begin, std::int64_t end) {
        std::copy(piece.weight + begin, piece.weight + end, piece.kept + begin);
      });
  };
  has_master ? keep(execution::Accumulation<S>()) : keep(S());
}

template <class S>
int KeepWeights::launch(const Operands<Pointers<S>>& o, void* stream) const {
  const auto with = [&]<class W>(W) {
    return optimizer::launch_keep_weights<W>(kept_pointers<W, S>(*this, o), o.asked, stream);
  };
  return has_master ? with(float()) : with(S());
}

// Few steps are asked: predictions are of the others.
execution::Cost KeepWeights::cost() const { return {}; }

STOWAGE_REFERENCES(KeepWeights)
STOWAGE_OPERATOR_RUN(KeepWeights)

}  // namespace stowage::kernels
