#include <cmath>
#include <limits>
#include <vector>

#include "execution/host_loops.hpp"
#include "kernels/attention/attention_tiles.hpp"
#include "kernels/softmax.hpp"

namespace stowage::kernels {

using detail::kKeyTile;
using detail::kQueryTile;
using detail::TokenRange;
using detail::Visibility;
using execution::Accumulation;

namespace {

// Some queries of one head: their outputs so far, with the largest score and the sum of exp.
template <class A>
class QueryTile {
 public:
  explicit QueryTile(std::int64_t head_dim)
      : q_(kQueryTile, head_dim),
        k_(kKeyTile, head_dim),
        v_(kKeyTile, head_dim),
        scores_(kQueryTile, kKeyTile),
        out_(kQueryTile, head_dim) {}

  template <class S>
  void load(const Matrix<const S>& q, TokenRange queries, double scale) {
    queries_ = queries;
    q_.load(q, static_cast<A>(scale));
    out_.set_zero(q.rows, q.columns);
    std::fill_n(maximum_, kQueryTile, -std::numeric_limits<A>::infinity());
    std::fill_n(sum_, kQueryTile, A{0});
  }

  // One tile of keys: all before are rescaled to the new maximum.
  template <class S>
  void attend(const Matrix<const S>& k, const Matrix<const S>& v, TokenRange keys,
              const Visibility& visibility) {
    k_.load(k);
    v_.load(v);
    multiply(Transpose::no, q_, Transpose::yes, k_, scores_);
    for (std::int64_t i = 0; i < q_.rows(); ++i)
      soften(i, detail::visible_columns(visibility, queries_.begin + i, keys));
    multiply(Transpose::no, scores_, Transpose::no, v_, out_, true);
  }

  template <class S>
  void store(const Matrix<S>& o, A* lse) {
    for (std::int64_t i = 0; i < out_.rows(); ++i) {
      lse[i] = maximum_[i] + std::log(sum_[i]);
      for (std::int64_t p = 0; p < out_.columns(); ++p) out_.row(i)[p] /= sum_[i];
    }
    out_.store(o);
  }

 private:
  // Row i of the scores becomes exp(score - maximum), 0 where masked.
  void soften(std::int64_t i, TokenRange visible) {
    A* score = scores_.row(i);
    if (visible.size() > 0) {
      A* seen = score + visible.begin;
      const A maximum = std::max(maximum_[i], largest(seen, visible.size()));
      const A factor = exponential(maximum_[i] - maximum);
      sum_[i] = sum_[i] * factor + exponentials(seen, visible.size(), maximum);
      for (std::int64_t p = 0; p < out_.columns(); ++p) out_.row(i)[p] *= factor;
      maximum_[i] = maximum;
    }
    std::fill(score, score + visible.begin, A{0});
    std::fill(score + visible.end, score + scores_.columns(), A{0});
  }

  TokenRange queries_;
  Tile<A> q_, k_, v_, scores_, out_;
  A maximum_[kQueryTile], sum_[kQueryTile];
};

}  // namespace

template <class S>
void AttentionForward::reference(const Operands<Pointers<S>>& o) const {
  using A = Accumulation<S>;
  const HeadExtents& extents = o.q.extents;
  const std::int64_t n = o.k.extents.length, group = shape.heads / shape.kv_heads;
  const detail::QueryGrid grid(detail::query_range(shape, extents.length), n);
  const std::int64_t tiles = grid.tiles();
  const Visibility visibility(o.seq_idx, n, shape.causal);
  execution::host_for_each(extents.sequences * shape.heads * tiles, [&](std::int64_t index) {
    const std::int64_t sequence = index / (shape.heads * tiles);
    const std::int64_t head = index / tiles % shape.heads;
    const TokenRange range = grid.queries(index % tiles);
    const std::int64_t first = range.begin - shape.first_query;  // of the call's rows
    const TokenRange rows{first, first + range.size()};
    QueryTile<A> tile(shape.head_dim);
    tile.load(detail::head_block(o.q, sequence, rows, head), range, shape.scale);
    const TokenRange seen = visibility.keys(grid.whole(index % tiles));
    detail::for_each_tile(seen, kKeyTile, [&](TokenRange keys) {
      tile.attend(detail::head_block(o.k, sequence, keys, head / group),
                  detail::head_block(o.v, sequence, keys, head / group), keys, visibility);
    });
    tile.store(detail::head_block(o.o, sequence, rows, head),
               o.lse + head * extents.tokens() + sequence * extents.length + first);
  });
}

STOWAGE_REFERENCES(AttentionForward)

}  // namespace stowage::kernels
