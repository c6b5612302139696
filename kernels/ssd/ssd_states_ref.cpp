#include <cmath>
#include <vector>

#include "execution/host_loops.hpp"
#include "kernels/exponential.hpp"
#include "kernels/ssd/ssd_chunks.hpp"

namespace stowage::kernels::detail {

using execution::Accumulation;
using execution::Bf16;

namespace {

// to = sum over the chunk's tokens of weight * v u^T, (P, N); uses up v.
template <class A>
void weighted_outer_product(Tile<A>& v, const A* weight, const Tile<A>& u, Matrix<A> to) {
  v.scale_rows(weight);
  gemm<A>(Transpose::yes, Transpose::no, to.rows, to.columns, v.rows(), A{1}, v.data(), to.rows,
          u.data(), to.columns, A{0}, to.data, to.stride);
}

// to += product of the chunk's decays * from.
template <class A>
void pass_state(const A* decay, std::int64_t count, Matrix<A> from, Matrix<A> to) {
  A product{1};
  for (std::int64_t i = 0; i < count; ++i) product *= decay[i];
  for (std::int64_t i = 0; i < to.rows * to.columns; ++i) to.data[i] += product * from.data[i];
}

// The state at an end of the sequence: given, or zero.
template <class A>
void enter(const A* given, std::int64_t head, Matrix<A> state) {
  const std::int64_t size = state.rows * state.columns;
  if (given == nullptr) {
    std::fill_n(state.data, size, A{0});
  } else {
    std::copy_n(given + head * size, size, state.data);
  }
}

// Without tokens, what enters leaves.
template <class A>
void hand_on(const SsdSizes& sizes, const A* from, A* to) {
  if (to == nullptr) return;
  const std::int64_t size = sizes.heads * sizes.state_elements();
  for (std::int64_t i = 0; i < size; ++i) to[i] = from == nullptr ? A{0} : from[i];
}

// A head's state at an end.
template <class A>
Matrix<A> end_state(const SsdSizes& sizes, A* states, std::int64_t head) {
  return {states + head * sizes.state_elements(), sizes.head_dim, sizes.state, sizes.state};
}

}  // namespace

template <class S>
void ssd_steps(const SsdSizes& sizes, const SsdInputs<Pointers<S>>& inputs,
               const SsdWorkspace<Accumulation<S>>& workspace) {
  using A = Accumulation<S>;
  execution::host_for(sizes.tokens, 256, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t h = 0; h < sizes.heads; ++h) {
      const A rate = -std::exp(static_cast<A>(inputs.a_log[h]));
      const A bias = static_cast<A>(inputs.dt_bias[h]);
      A* step = workspace.steps(h);
      A* decay = workspace.decays(h);
      for (std::int64_t t = begin; t < end; ++t) {
        step[t] = std::clamp(softplus(static_cast<A>(inputs.dt(t, h)) + bias),
                             static_cast<A>(sizes.dt_min), static_cast<A>(sizes.dt_max));
        const bool first = t > 0 && inputs.seq_idx[t] != inputs.seq_idx[t - 1];
        decay[t] = first ? A{0} : std::exp(step[t] * rate);
      }
    }
  });
}

// S of chunk c = sum of (decay to its exit) dt X B^T enters chunk c + 1, beside what passed c.
template <class S>
void ssd_states(const SsdSizes& sizes, const SsdInputs<Pointers<S>>& inputs,
                const SsdWorkspace<Accumulation<S>>& workspace, Accumulation<S>* final_state) {
  using A = Accumulation<S>;
  if (sizes.chunks == 0) return hand_on(sizes, inputs.initial_state, final_state);
  const auto after = [&](std::int64_t chunk, std::int64_t head) {
    return chunk + 1 < sizes.chunks ? workspace.state(chunk + 1, head)
                                    : end_state(sizes, final_state, head);
  };
  const std::int64_t passed = sizes.chunks - (final_state == nullptr ? 1 : 0);
  execution::host_for_each(passed * sizes.groups, [&](std::int64_t index) {
    const std::int64_t chunk = index / sizes.groups, group = index % sizes.groups;
    Tile<A> b(sizes.chunk, sizes.state), x(sizes.chunk, sizes.head_dim);
    std::vector<A> weight(static_cast<std::size_t>(sizes.chunk));
    b.load(chunk_block(sizes, sizes.b(inputs.xbc), chunk, group, sizes.state));
    for (std::int64_t i = 0; i < sizes.heads_per_group(); ++i) {
      const std::int64_t head = group * sizes.heads_per_group() + i;
      const A* step = workspace.steps(head, chunk);
      decay_to_exit(workspace.decays(head, chunk), sizes.size(chunk), weight.data());
      for (std::int64_t j = 0; j < sizes.size(chunk); ++j) weight[j] *= step[j];
      x.load(chunk_block(sizes, sizes.x(inputs.xbc), chunk, head, sizes.head_dim));
      weighted_outer_product(x, weight.data(), b, after(chunk, head));
    }
  });
  execution::host_for_each(sizes.heads, [&](std::int64_t head) {
    enter(inputs.initial_state, head, workspace.state(0, head));
    for (std::int64_t chunk = 0; chunk < passed; ++chunk)
      pass_state(workspace.decays(head, chunk), sizes.size(chunk), workspace.state(chunk, head),
                 after(chunk, head));
  });
}

// The mirror image: sum of (decay from its entry) dY C^T leaves chunk c - 1, beside what passed c.
template <class S>
void ssd_adjoints(const SsdSizes& sizes, const OperandsOf<SsdBackward, Pointers<S>>& o,
                  const SsdWorkspace<Accumulation<S>>& workspace) {
  using A = Accumulation<S>;
  if (sizes.chunks == 0) return hand_on<A>(sizes, o.dfinal_state, o.dinitial_state);
  const auto before = [&](std::int64_t chunk, std::int64_t head) {
    return chunk > 0 ? workspace.adjoint(chunk - 1, head)
                     : end_state(sizes, o.dinitial_state, head);
  };
  const std::int64_t last = o.dinitial_state == nullptr ? 1 : 0;
  execution::host_for_each((sizes.chunks - last) * sizes.groups, [&](std::int64_t index) {
    const std::int64_t chunk = index / sizes.groups + last, group = index % sizes.groups;
    Tile<A> c(sizes.chunk, sizes.state), dy_head(sizes.chunk, sizes.head_dim);
    std::vector<A> weight(static_cast<std::size_t>(sizes.chunk));
    c.load(chunk_block(sizes, sizes.c(o.inputs.xbc), chunk, group, sizes.state));
    for (std::int64_t i = 0; i < sizes.heads_per_group(); ++i) {
      const std::int64_t head = group * sizes.heads_per_group() + i;
      decay_from_entry(workspace.decays(head, chunk), sizes.size(chunk), weight.data());
      dy_head.load(chunk_block(sizes, sizes.rows(o.dy), chunk, head, sizes.head_dim));
      weighted_outer_product(dy_head, weight.data(), c, before(chunk, head));
    }
  });
  execution::host_for_each(sizes.heads, [&](std::int64_t head) {
    enter(o.dfinal_state, head, workspace.adjoint(sizes.chunks - 1, head));
    for (std::int64_t chunk = sizes.chunks - 1; chunk >= last; --chunk)
      pass_state(workspace.decays(head, chunk), sizes.size(chunk), workspace.adjoint(chunk, head),
                 before(chunk, head));
  });
}

#define STOWAGE_INSTANTIATE(S)                                                             \
  template void ssd_steps(const SsdSizes&, const SsdInputs<Pointers<S>>&,                  \
                          const SsdWorkspace<Accumulation<S>>&);                           \
  template void ssd_states(const SsdSizes&, const SsdInputs<Pointers<S>>&,                 \
                           const SsdWorkspace<Accumulation<S>>&, Accumulation<S>*);        \
  template void ssd_adjoints(const SsdSizes&, const OperandsOf<SsdBackward, Pointers<S>>&, \
                             const SsdWorkspace<Accumulation<S>>&);
STOWAGE_INSTANTIATE(double)
STOWAGE_INSTANTIATE(float)
STOWAGE_INSTANTIATE(Bf16)
#undef STOWAGE_INSTANTIATE

}  // namespace stowage::kernels::detail
