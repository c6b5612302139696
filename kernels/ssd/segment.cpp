#include "kernels/ssd/segment.hpp"

#include "kernels/cost.hpp"
#include "kernels/launch.hpp"
#include "kernels/ssd/segment_chain.hpp"

namespace stowage::kernels {

using execution::Cost;
using execution::Dtype;
using execution::Queue;
using execution::View;

template <bool kAdjoint>
void SsdSegment<kAdjoint>::run(Queue& queue, const Operands<View>& views) const {
  kernels::run(queue, *this, views);
}

// One product (P, n) (n, N) a head.
template <bool kAdjoint>
Cost SsdSegment<kAdjoint>::cost() const {
  return {2.0 * static_cast<double>(shape.inner() * shape.state) * static_cast<double>(tokens),
          bytes(tokens * (shape.inner() + shape.shared() + shape.heads), storage) +
              bytes(tokens, Dtype::int32) +
              bytes(ssd_segment_elements(shape), execution::accumulation(storage))};
}

template <bool kAdjoint>
std::string SsdEnter<kAdjoint>::fault() const {
  if (segments <= 0 || tokens % segments != 0) return "the tokens do not divide into segments";
  return segment >= 0 && segment < segments ? "" : "there is no such segment";
}

template <bool kAdjoint>
void SsdEnter<kAdjoint>::run(Queue& queue, const Operands<View>& views) const {
  check(*this, views);
  execution::with_storage_type(storage, [&]<class S>() {
    const auto o = addresses<S>(*this, views);
    execution::parallel_for(
        queue, shape.inner() * shape.state,
        detail::EnterSegment<execution::Accumulation<S>, kAdjoint>{
            o.all, o.seq_idx, o.state, segments, segment, tokens / segments,
            shape.inner() * shape.state, shape.head_dim * shape.state, shape.heads});
  });
}

template <bool kAdjoint>
Cost SsdEnter<kAdjoint>::cost() const {
  const std::int64_t elements = ssd_segment_elements(shape);
  return {2.0 * static_cast<double>(segments * elements),
          bytes((segments + 1) * elements, execution::accumulation(storage))};
}

template struct SsdSegment<false>;
template struct SsdSegment<true>;
template struct SsdEnter<false>;
template struct SsdEnter<true>;

}  // namespace stowage::kernels
