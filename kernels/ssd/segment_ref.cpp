#include <algorithm>
#include <vector>

#include "execution/host_loops.hpp"
#include "kernels/ssd/segment.hpp"
#include "kernels/ssd/ssd_chunks.hpp"

namespace stowage::kernels {

using detail::SsdSizes;
using detail::SsdWorkspace;
using execution::Accumulation;

namespace {

constexpr std::int64_t kTokens = 64;  // of one product

// Step sizes and decays of all tokens.
template <class S>
std::vector<Accumulation<S>> steps_and_decays(const SsdSizes& sizes,
                                              const SsdInputs<Pointers<S>>& inputs) {
  std::vector<Accumulation<S>> room(static_cast<std::size_t>(2 * sizes.heads * sizes.tokens));
  detail::ssd_steps(sizes, inputs, SsdWorkspace<Accumulation<S>>(sizes, room.data()));
  return room;
}

// to (P, N) = sum over the tokens of weight * v u^T.
template <class S>
void weighted_sum(const SsdSizes& sizes, const Matrix<const S>& v, const Matrix<const S>& u,
                  const std::vector<Accumulation<S>>& weight, Accumulation<S>* to) {
  using A = Accumulation<S>;
  Tile<A> left(kTokens, sizes.head_dim), right(kTokens, sizes.state);
  Tile<A> sum(sizes.head_dim, sizes.state);
  sum.set_zero(sizes.head_dim, sizes.state);
  for (std::int64_t first = 0; first < sizes.tokens; first += kTokens) {
    const std::int64_t count = std::min(kTokens, sizes.tokens - first);
    const A* factors = weight.data() + first;
    if (std::all_of(factors, factors + count, [](A w) { return w == A{0}; })) continue;
    left.load(block(v, first, 0, count, v.columns));
    left.scale_rows(factors);
    right.load(block(u, first, 0, count, u.columns));
    multiply(Transpose::yes, left, Transpose::no, right, sum, true);
  }
  std::copy_n(sum.data(), sum.size(), to);
}

}  // namespace

template <bool kAdjoint>
template <class S>
void SsdSegment<kAdjoint>::reference(const Operands<Pointers<S>>& o) const {
  using A = Accumulation<S>;
  const SsdSizes sizes(shape, tokens);
  std::vector<A> room = steps_and_decays(sizes, o.inputs);
  const SsdWorkspace<A> steps(sizes, room.data());
  const Matrix<const S> v = kAdjoint ? sizes.rows(o.dy) : sizes.x(o.inputs.xbc);
  const Matrix<const S> u = kAdjoint ? sizes.c(o.inputs.xbc) : sizes.b(o.inputs.xbc);
  execution::host_for_each(sizes.heads, [&](std::int64_t head) {
    const A *step = steps.steps(head), *decay = steps.decays(head);
    std::vector<A> weight(static_cast<std::size_t>(tokens));
    A product{1};
    if constexpr (kAdjoint) {
      for (std::int64_t t = 0; t < tokens; ++t) weight[t] = product *= decay[t];
    } else {
      for (std::int64_t t = tokens - 1; t >= 0; --t) {
        weight[t] = product * step[t];
        product *= decay[t];
      }
    }
    o.to[sizes.heads * sizes.state_elements() + head] = product;
    const std::int64_t group = head / sizes.heads_per_group();
    weighted_sum(sizes, block(v, 0, head * sizes.head_dim, tokens, sizes.head_dim),
                 block(u, 0, group * sizes.state, tokens, sizes.state), weight,
                 o.to + head * sizes.state_elements());
  });
}

STOWAGE_REFERENCES(SsdSegmentState)
STOWAGE_REFERENCES(SsdSegmentAdjoint)

}  // namespace stowage::kernels
