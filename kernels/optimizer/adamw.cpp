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
  return with_adamw_types<float>(*this, [&]<class M, class G>(M, G) {
    return optimizer::launch_adamw<S, M, G>(
        pieces, adamw_pointers<S, M, G>(*this, o),
        {o.schedule, o.step, o.norm, o.step_ok, clip, options, seed}, stream);
  });
}

std::string Adamw::fault() const {
  const bool rounds = m_type == Dtype::e4m3;
  if (m_type != Dtype::bf16 && !rounds && m_type != execution::accumulation(storage))
    return fmt::format("first moments of {}", execution::name(m_type));
  if (v_type != (rounds ? Dtype::bf16 : m_type))
    return fmt::format("second moments of {} beside first ones of {}", execution::name(v_type),
                       execution::name(m_type));
  if (gradient_type != Dtype::bf16 && gradient_type != execution::accumulation(storage))
    return fmt::format("gradients of {}", execution::name(gradient_type));
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
          bytes(elements, gradient_type) + 2 * (bytes(elements, m_type) + bytes(elements, v_type)) +
              update};
}

void Advance::run(Queue& queue, const Operands<View>& views) const {
  check(*this, views);
  execution::parallel_for(
      queue, 1,
      detail::Advance{views.step.as<std::int64_t>(), views.step_ok.as<const std::int32_t>()});
}

STOWAGE_OPERATOR_RUN(Adamw)

}  // namespace stowage::kernels
