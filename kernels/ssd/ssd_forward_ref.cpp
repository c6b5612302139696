#include <functional>
#include <numeric>
#include <vector>

#include "execution/host_loops.hpp"
#include "kernels/ssd/ssd_chunks.hpp"

namespace stowage::kernels {

using detail::SsdSizes;
using detail::SsdWorkspace;
using execution::Accumulation;

namespace {

// The output of one chunk for the heads of one group.
template <class S>
class ForwardChunk {
 public:
  using A = Accumulation<S>;

  ForwardChunk(const SsdSizes& sizes, const SsdInputs<Pointers<S>>& inputs,
               const SsdWorkspace<A>& workspace, std::int64_t chunk, std::int64_t group)
      : sizes_(sizes),
        inputs_(inputs),
        workspace_(workspace),
        chunk_(chunk),
        count_(sizes.size(chunk)),
        c_(count_, sizes.state),
        products_(count_, count_),
        mixing_(count_, count_),
        x_(count_, sizes.head_dim),
        y_(count_, sizes.head_dim),
        from_state_(count_, sizes.head_dim),
        row_(static_cast<std::size_t>(count_)) {
    Tile<A> b(count_, sizes.state);
    b.load(detail::chunk_block(sizes, sizes.b(inputs.xbc), chunk, group, sizes.state));
    c_.load(detail::chunk_block(sizes, sizes.c(inputs.xbc), chunk, group, sizes.state));
    multiply(Transpose::no, c_, Transpose::yes, b, products_);
  }

  // y = (C B^T * L * dt) X + (decay from entry) C h^T + d X
  void run(std::int64_t head, Matrix<S> y) {
    const A* decay = workspace_.decays(head, chunk_);
    mix(decay, workspace_.steps(head, chunk_));
    x_.load(detail::chunk_block(sizes_, sizes_.x(inputs_.xbc), chunk_, head, sizes_.head_dim));
    multiply(Transpose::no, mixing_, Transpose::no, x_, y_);
    add(x_, nullptr, static_cast<A>(inputs_.d[head]));
    if (decay[0] != A{0} && (chunk_ > 0 || inputs_.initial_state != nullptr)) {
      const Matrix<const A> state = workspace_.state(chunk_, head);
      multiply(Transpose::no, c_, Transpose::yes, state, from_state_);
      detail::decay_from_entry(decay, count_, row_.data());
      add(from_state_, row_.data(), A{1});
    }
    y_.store(detail::chunk_block(sizes_, y, chunk_, head, sizes_.head_dim));
  }

 private:
  // mixing[i, j] = (C_i B_j) L[i, j] dt_j
  void mix(const A* decay, const A* step) {
    for (std::int64_t i = 0; i < count_; ++i) {
      detail::next_decay_row(decay, i, row_.data());
      const A* product = products_.row(i);
      A* to = mixing_.row(i);
      for (std::int64_t j = 0; j <= i; ++j) to[j] = product[j] * row_[j] * step[j];
      std::fill(to + i + 1, to + count_, A{0});
    }
  }

  // y += factor * row_factors * term
  void add(const Tile<A>& term, const A* row_factors, A factor) {
    for (std::int64_t i = 0; i < count_; ++i) {
      const A f = row_factors ? factor * row_factors[i] : factor;
      for (std::int64_t p = 0; p < sizes_.head_dim; ++p) y_.row(i)[p] += f * term.row(i)[p];
    }
  }

  const SsdSizes& sizes_;
  const SsdInputs<Pointers<S>>& inputs_;
  const SsdWorkspace<A>& workspace_;
  std::int64_t chunk_, count_;
  Tile<A> c_, products_, mixing_, x_, y_, from_state_;
  std::vector<A> row_;
};

}  // namespace

template <class S>
void SsdForward::reference(const Operands<Pointers<S>>& o) const {
  using A = Accumulation<S>;
  const SsdSizes sizes(shape, tokens);
  const SsdWorkspace<A> room(sizes, o.workspace);
  detail::ssd_steps(sizes, o.inputs, room);
  detail::ssd_states(sizes, o.inputs, room, o.final_state);
  if (final_state) {
    for (std::int64_t head = 0; head < sizes.heads; ++head) {
      const A* decay = room.decays(head);
      o.total_decay[head] = std::accumulate(decay, decay + tokens, A{1}, std::multiplies<A>());
    }
  }
  execution::host_for_each(sizes.chunks * sizes.groups, [&](std::int64_t index) {
    const std::int64_t group = index % sizes.groups;
    ForwardChunk<S> chunk(sizes, o.inputs, room, index / sizes.groups, group);
    for (std::int64_t i = 0; i < sizes.heads_per_group(); ++i)
      chunk.run(group * sizes.heads_per_group() + i, sizes.rows(o.y));
  });
}

STOWAGE_REFERENCES(SsdForward)

}  // namespace stowage::kernels
