#include "kernels/conv1d/halo.hpp"

#include "kernels/conv1d/halo_rows.hpp"
#include "kernels/cost.hpp"
#include "kernels/launch.hpp"

namespace stowage::kernels {

using execution::Cost;
using execution::Queue;
using execution::View;

namespace {

template <class Op>
std::string fault_of(const Op& op) {
  if (op.tokens < kConv1dHalo) return "a segment has fewer tokens than the convolution looks back";
  const bool inside = op.border >= kConv1dHalo && op.border < op.sequence_tokens;
  return inside ? "" : "no token lies at the border";
}

template <class Op>
Cost cost_of(const Op& op) {
  const std::int64_t elements = kConv1dHalo * op.channels;
  return {static_cast<double>(elements), 3 * bytes(elements, op.storage)};
}

}  // namespace

std::string Conv1dHaloRows::fault() const { return fault_of(*this); }
Cost Conv1dHaloRows::cost() const { return cost_of(*this); }

void Conv1dHaloRows::run(Queue& queue, const Operands<View>& views) const {
  check(*this, views);
  execution::with_storage_type(storage, [&]<class S>() {
    const auto o = addresses<S>(*this, views);
    execution::parallel_for(
        queue, kConv1dHalo * channels,
        detail::TakeHalo<S>{
            {o.seq_idx, border, channels, o.x.stride}, o.x.row(tokens - kConv1dHalo), o.rows});
  });
}

std::string Conv1dHaloAdd::fault() const { return fault_of(*this); }
Cost Conv1dHaloAdd::cost() const { return cost_of(*this); }

void Conv1dHaloAdd::run(Queue& queue, const Operands<View>& views) const {
  check(*this, views);
  execution::with_storage_type(storage, [&]<class S>() {
    const auto o = addresses<S>(*this, views);
    execution::parallel_for(queue, kConv1dHalo * channels,
                            detail::AddHalo<S>{{o.seq_idx, border, channels, o.dx.stride},
                                               o.gradient,
                                               o.dx.row(tokens - kConv1dHalo)});
  });
}

}  // namespace stowage::kernels
