#include <vector>

#include "execution/host_loops.hpp"
#include "kernels/attention/attention_tiles.hpp"
#include "kernels/exponential.hpp"
#include "kernels/reduce.hpp"

namespace stowage::kernels {

using detail::kKeyTile;
using detail::kQueryTile;
using detail::TokenRange;
using detail::Visibility;
using execution::Accumulation;

namespace {

// What the gradients are made from; n: the call's queries.
template <class S>
struct BackwardInputs {
  HeadMatrix<const S> q, k, v, o, d_o;
  const Accumulation<S>* lse = nullptr;    // (H, n)
  const Accumulation<S>* delta = nullptr;  // (H, n): rowsum(d_o * o)
};

// Where queries lie among the rows of a call.
TokenRange rows_of(const AttentionShape& shape, TokenRange queries) {
  return {queries.begin - shape.first_query, queries.end - shape.first_query};
}

// One tile of scores, in two passes over the whole: dq needs all keys of a query, dk and dv all
// queries of a key. The scores are computed in both, so no sum is shared between threads.
template <class S>
class ScoreTile {
 public:
  using A = Accumulation<S>;

  ScoreTile(const AttentionShape& shape, const BackwardInputs<S>& inputs,
            const Visibility& visibility)
      : q(kQueryTile, shape.head_dim),
        d_o(kQueryTile, shape.head_dim),
        k(kKeyTile, shape.head_dim),
        v(kKeyTile, shape.head_dim),
        p(kQueryTile, kKeyTile),
        ds(kQueryTile, kKeyTile),
        shape_(shape),
        inputs_(inputs),
        visibility_(visibility) {}

  void load_queries(std::int64_t sequence, TokenRange queries, std::int64_t head) {
    const TokenRange rows = rows_of(shape_, queries);
    q.load(detail::head_block(inputs_.q, sequence, rows, head));
    d_o.load(detail::head_block(inputs_.d_o, sequence, rows, head));
    queries_ = queries;
    const HeadExtents& extents = inputs_.q.extents;
    const std::int64_t first = head * extents.tokens() + sequence * extents.length + rows.begin;
    lse_ = inputs_.lse + first;
    delta_ = inputs_.delta + first;
  }

  void load_keys(std::int64_t sequence, TokenRange keys, std::int64_t kv_head) {
    k.load(detail::head_block(inputs_.k, sequence, keys, kv_head));
    v.load(detail::head_block(inputs_.v, sequence, keys, kv_head));
    keys_ = keys;
  }

  // p = softmax, ds = scale * p * (d_o v^T - delta): the gradient of q k^T.
  void compute() {
    multiply(Transpose::no, q, Transpose::yes, k, p);
    multiply(Transpose::no, d_o, Transpose::yes, v, ds);
    const A scale = static_cast<A>(shape_.scale);
    for (std::int64_t i = 0; i < p.rows(); ++i) {
      const std::int64_t query = queries_.begin + i;
      const TokenRange visible = detail::visible_columns(visibility_, query, keys_);
      A* pi = p.row(i);
      A* dsi = ds.row(i);
      const A lse = lse_[i], delta = delta_[i];
      for (std::int64_t j = visible.begin; j < visible.end; ++j) {
        pi[j] = exponential(pi[j] * scale - lse);
        dsi[j] = pi[j] * (dsi[j] - delta) * scale;
      }
      for (A* row : {pi, dsi}) {
        std::fill(row, row + visible.begin, A{0});
        std::fill(row + visible.end, row + p.columns(), A{0});
      }
    }
  }

  Tile<A> q, d_o, k, v, p, ds;

 private:
  const AttentionShape& shape_;
  const BackwardInputs<S>& inputs_;
  const Visibility& visibility_;
  TokenRange queries_, keys_;
  const A* lse_ = nullptr;
  const A* delta_ = nullptr;
};

template <class S>
void compute_delta(const AttentionShape& shape, const BackwardInputs<S>& inputs,
                   Accumulation<S>* delta) {
  using A = Accumulation<S>;
  const HeadExtents& extents = inputs.q.extents;
  const std::int64_t n = extents.tokens();
  execution::host_for(n, kQueryTile, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t t = begin; t < end; ++t)
      for (std::int64_t head = 0; head < shape.heads; ++head) {
        const std::int64_t sequence = t / extents.length, row = t % extents.length;
        const S* o = inputs.o.rows(sequence, row, 1, head).data;
        const S* d_o = inputs.d_o.rows(sequence, row, 1, head).data;
        delta[head * n + t] = ordered_sum<A>(shape.head_dim, [=](std::int64_t p) {
          return static_cast<A>(o[p]) * static_cast<A>(d_o[p]);
        });
      }
  });
}

template <class S>
void query_gradients(const AttentionShape& shape, const BackwardInputs<S>& inputs,
                     const Visibility& visibility, const HeadMatrix<S>& dq) {
  const detail::QueryGrid grid(detail::query_range(shape, inputs.q.extents.length),
                               inputs.k.extents.length);
  const std::int64_t tiles = grid.tiles();
  const std::int64_t items = inputs.q.extents.sequences * shape.heads * tiles;
  execution::host_for_each(items, [&](std::int64_t index) {
    const std::int64_t sequence = index / (shape.heads * tiles);
    const std::int64_t head = index / tiles % shape.heads;
    const TokenRange queries = grid.queries(index % tiles);
    ScoreTile<S> tile(shape, inputs, visibility);
    Tile<Accumulation<S>> sum(kQueryTile, shape.head_dim);
    sum.set_zero(queries.size(), shape.head_dim);
    tile.load_queries(sequence, queries, head);
    const TokenRange seen = visibility.keys(grid.whole(index % tiles));
    detail::for_each_tile(seen, kKeyTile, [&](TokenRange keys) {
      tile.load_keys(sequence, keys, head / (shape.heads / shape.kv_heads));
      tile.compute();
      multiply(Transpose::no, tile.ds, Transpose::no, tile.k, sum, true);
    });
    sum.store(detail::head_block(dq, sequence, rows_of(shape, queries), head));
  });
}

template <class S, class G>
void key_gradients(const AttentionShape& shape, const BackwardInputs<S>& inputs,
                   const Visibility& visibility, const HeadMatrix<G>& dk, const HeadMatrix<G>& dv) {
  const std::int64_t n = inputs.k.extents.length, tiles = (n + kKeyTile - 1) / kKeyTile;
  const TokenRange all = detail::query_range(shape, inputs.q.extents.length);
  const std::int64_t group = shape.heads / shape.kv_heads;
  const std::int64_t items = inputs.q.extents.sequences * shape.kv_heads * tiles;
  execution::host_for_each(items, [&](std::int64_t index) {
    const std::int64_t sequence = index / (shape.kv_heads * tiles);
    const std::int64_t kv_head = index / tiles % shape.kv_heads, first = index % tiles * kKeyTile;
    const TokenRange keys{first, std::min(first + kKeyTile, n)};
    ScoreTile<S> tile(shape, inputs, visibility);
    Tile<Accumulation<S>> dk_sum(kKeyTile, shape.head_dim), dv_sum(kKeyTile, shape.head_dim);
    dk_sum.set_zero(keys.size(), shape.head_dim);
    dv_sum.set_zero(keys.size(), shape.head_dim);
    tile.load_keys(sequence, keys, kv_head);
    for (std::int64_t head = kv_head * group; head < (kv_head + 1) * group; ++head)
      detail::for_each_tile(
          visibility.queries(keys).within(all), kQueryTile, [&](TokenRange queries) {
            tile.load_queries(sequence, queries, head);
            tile.compute();
            multiply(Transpose::yes, tile.p, Transpose::no, tile.d_o, dv_sum, true);
            multiply(Transpose::yes, tile.ds, Transpose::no, tile.q, dk_sum, true);
          });
    dk_sum.store(detail::head_block(dk, sequence, keys, kv_head));
    dv_sum.store(detail::head_block(dv, sequence, keys, kv_head));
  });
}

}  // namespace

template <class S>
void AttentionBackward::reference(const Operands<Pointers<S>>& o) const {
  const BackwardInputs<S> all{o.q, o.k, o.v, o.o, o.d_o, o.lse, o.workspace};
  const Visibility visibility(o.seq_idx, o.k.extents.length, shape.causal);
  compute_delta(shape, all, o.workspace);
  query_gradients(shape, all, visibility, o.dq);
  const auto keys = [&]<class G>(G) {
    const auto typed = [](const HeadMatrix<void>& m) {
      return HeadMatrix<G>{static_cast<G*>(m.data), m.extents, m.strides};
    };
    key_gradients(shape, all, visibility, typed(o.dk), typed(o.dv));
  };
  wide ? keys(Accumulation<S>{}) : keys(S{});
}

STOWAGE_REFERENCES(AttentionBackward)

}  // namespace stowage::kernels
