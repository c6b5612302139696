#include "kernels/optimizer/adamw.hpp"

#include "kernels/cost.hpp"
#include "kernels/launch.hpp"
#include "kernels/optimizer/adamw_launch.hpp"
#include "kernels/optimizer/advance.hpp"

namespace stowage::kernels {

using execution::Cost;
using execution::Dtype;
using execution::Queue;
using execution::View;

template <class S>
int Adamw::launch(const Operands<Pointers<S>>& o, void* stream) const {
  const auto with = [&]<class M>(M) {
    return optimizer::launch_adamw<S, M>(adamw_pointers<S, M>(*this, o),
                                         {o.schedule, o.step, o.norm, o.step_ok, clip, options},
                                         stream);
  };
  return bf16_moments ? with(execution::Bf16()) : with(float());
}

// Gradient read; parameter or master, m and v read and written; with a master, parameter written.
Cost Adamw::cost() const {
  const Dtype sums = execution::accumulation(storage);
  std::int64_t elements = 0;
  for (const Piece& piece : pieces) elements += piece.elements;
  const double update = has_master ? 2 * bytes(elements, sums) + bytes(elements, storage)
                                   : 2 * bytes(elements, storage);
  return {15.0 * static_cast<double>(elements),
          bytes(elements, sums) + 4 * bytes(elements, moments()) + update};
}

void Advance::run(Queue& queue, const Operands<View>& views) const {
  check(*this, views);
  execution::parallel_for(
      queue, 1,
      detail::Advance{views.step.as<std::int64_t>(), views.step_ok.as<const std::int32_t>()});
}

STOWAGE_OPERATOR_RUN(Adamw)

}  // namespace stowage::kernels
