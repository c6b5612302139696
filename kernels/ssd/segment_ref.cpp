#include <algorithm>
#include <vector>

#include "execution/host_loops.hpp"
#include "kernels/ssd/segment.hpp"
#include "kernels/ssd/ssd_chunks.hpp"

namespace stowage::kernels {

using detail::SsdSizes;
using detail::SsdWorkspace;
using execution::Accumulation;
using execution::Bf16;

namespace {

constexpr std::int64_t kTokens = 64;  // of one product

// Step sizes and decays of all tokens.
template <class S>
std::vector<Accumulation<S>> steps_and_decays(const SsdSizes& sizes, const SsdInputs<S>& inputs) {
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

// A state or an adjoint of each head, and its decay. `weigh(steps, decays, weight)` fills the
// weights of a head's tokens and gives the decay over all of them.
template <class S, class Weigh>
void leave(const SsdShape& shape, const SsdInputs<S>& inputs, const Matrix<const S>& v,
           const Matrix<const S>& u, Accumulation<S>* to, const Weigh& weigh) {
  using A = Accumulation<S>;
  const SsdSizes sizes(shape, inputs.x.rows);
  std::vector<A> room = steps_and_decays(sizes, inputs);
  const SsdWorkspace<A> steps(sizes, room.data());
  execution::host_for_each(sizes.heads, [&](std::int64_t head) {
    std::vector<A> weight(static_cast<std::size_t>(sizes.tokens));
    const std::int64_t group = head / sizes.heads_per_group();
    to[sizes.heads * sizes.state_elements() + head] =
        weigh(sizes.tokens, steps.steps(head), steps.decays(head), weight.data());
    weighted_sum(sizes, block(v, 0, head * sizes.head_dim, sizes.tokens, sizes.head_dim),
                 block(u, 0, group * sizes.state, sizes.tokens, sizes.state), weight,
                 to + head * sizes.state_elements());
  });
}

}  // namespace

template <class S>
void ssd_segment_state_ref(const SsdShape& shape, const SsdInputs<S>& inputs, Accumulation<S>* to) {
  using A = Accumulation<S>;
  leave(shape, inputs, inputs.x, inputs.b, to,
        [](std::int64_t tokens, const A* step, const A* decay, A* weight) {
          A product{1};
          for (std::int64_t t = tokens - 1; t >= 0; --t) {
            weight[t] = product * step[t];
            product *= decay[t];
          }
          return product;
        });
}

template <class S>
void ssd_segment_adjoint_ref(const SsdShape& shape, const SsdInputs<S>& inputs, const S* dy,
                             Accumulation<S>* to) {
  using A = Accumulation<S>;
  const Matrix<const S> v{dy, inputs.x.rows, inputs.x.columns, inputs.x.columns};
  leave(shape, inputs, v, inputs.c, to,
        [](std::int64_t tokens, const A*, const A* decay, A* weight) {
          A product{1};
          for (std::int64_t t = 0; t < tokens; ++t) weight[t] = product *= decay[t];
          return product;
        });
}

#define STOWAGE_INSTANTIATE(S)                                                                 \
  template void ssd_segment_state_ref(const SsdShape&, const SsdInputs<S>&, Accumulation<S>*); \
  template void ssd_segment_adjoint_ref(const SsdShape&, const SsdInputs<S>&, const S*,        \
                                        Accumulation<S>*);
STOWAGE_INSTANTIATE(double)
STOWAGE_INSTANTIATE(float)
STOWAGE_INSTANTIATE(Bf16)
#undef STOWAGE_INSTANTIATE

}  // namespace stowage::kernels
