#include "kernels/optimizer/adamw.hpp"

#include <fmt/core.h>

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
  return with_moment_type<float>(*this, [&]<class M>(M) {
    return optimizer::launch_adamw<S, M>(
        pieces, adamw_pointers<S, M>(*this, o),
        {o.schedule, o.step, o.norm, o.step_ok, clip, options, seed}, stream);
  });
}

std::string Adamw::fault() const {
  const bool rounds = m == Dtype::e4m3;
  if (m != Dtype::bf16 && !rounds && m != execution::accumulation(storage))
    return fmt::format("first moments of {}", execution::name(m));
  if (v != (rounds ? Dtype::bf16 : m))
    return fmt::format("second moments of {} beside first ones of {}", execution::name(v),
                       execution::name(m));
  return rounds && has_master ? "a master beside first moments of e4m3" : "";
}

// Gradient read; parameter or master, m and v read and written; with a master, parameter written.
Cost Adamw::cost() const {
  const Dtype sums = execution::accumulation(storage);
  std::int64_t elements = 0;
  for (const Piece& piece : pieces) elements += piece.elements;
  const double update = has_master ? 2 * bytes(elements, sums) + bytes(elements, storage)
                                   : 2 * bytes(elements, storage);
  return {15.0 * static_cast<double>(elements),
          bytes(elements, sums) + 2 * (bytes(elements, m) + bytes(elements, v)) + update};
}

void Advance::run(Queue& queue, const Operands<View>& views) const {
  check(*this, views);
  execution::parallel_for(
      queue, 1,
      detail::Advance{views.step.as<std::int64_t>(), views.step_ok.as<const std::int32_t>()});
}

STOWAGE_OPERATOR_RUN(Adamw)

}  // namespace stowage::kernels
