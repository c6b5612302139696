#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "kernels/attention/attention.hpp"
#include "kernels/tile.hpp"

/// What the forward and the backward reference of attention share.
namespace stowage::kernels::detail {

/// Queries and keys of one tile of scores.
inline constexpr std::int64_t kQueryTile = 64;
inline constexpr std::int64_t kKeyTile = 128;

/// A half-open range of tokens.
struct TokenRange {
  std::int64_t begin = 0, end = 0;
  std::int64_t size() const { return end - begin; }
  TokenRange within(TokenRange other) const {
    const std::int64_t first = std::clamp(begin, other.begin, other.end);
    return {first, std::max(first, std::min(end, other.end))};
  }
};

/// The queries of a call, by their places among the keys.
inline TokenRange query_range(const AttentionShape& shape, std::int64_t queries) {
  return {shape.first_query, shape.first_query + queries};
}

/// Tiles of kQueryTile queries, by the grid of all tokens whatever part of them a call has: a row's
/// sums are then cut in the same places.
class QueryGrid {
 public:
  QueryGrid(TokenRange queries, std::int64_t tokens)
      : queries_(queries), tokens_(tokens), first_(queries.begin / kQueryTile) {}

  std::int64_t tiles() const {
    return queries_.size() == 0 ? 0 : (queries_.end + kQueryTile - 1) / kQueryTile - first_;
  }
  /// A tile with all its tokens, and with those that are queries of the call.
  TokenRange whole(std::int64_t tile) const {
    const std::int64_t begin = (first_ + tile) * kQueryTile;
    return {begin, std::min(begin + kQueryTile, tokens_)};
  }
  TokenRange queries(std::int64_t tile) const { return whole(tile).within(queries_); }

 private:
  TokenRange queries_;
  std::int64_t tokens_, first_;
};

/// Which tokens of a sequence see which; without seq_idx it is one document.
class Visibility {
 public:
  Visibility(const std::int32_t* seq_idx, std::int64_t tokens, bool causal)
      : causal_(causal), documents_(static_cast<std::size_t>(tokens), TokenRange{0, tokens}) {
    if (seq_idx == nullptr) return;
    for (std::int64_t begin = 0; begin < tokens;) {
      const std::int64_t end =
          std::upper_bound(seq_idx + begin, seq_idx + tokens, seq_idx[begin]) - seq_idx;
      std::fill(documents_.begin() + begin, documents_.begin() + end, TokenRange{begin, end});
      begin = end;
    }
  }

  /// The keys that a query sees.
  TokenRange keys(std::int64_t query) const {
    const TokenRange& document = of(query);
    return {document.begin, causal_ ? query + 1 : document.end};
  }
  /// The keys that any query of a range sees.
  TokenRange keys(TokenRange queries) const {
    return {of(queries.begin).begin, keys(queries.end - 1).end};
  }
  /// The queries that see any key of a range.
  TokenRange queries(TokenRange keys) const {
    return {causal_ ? keys.begin : of(keys.begin).begin, of(keys.end - 1).end};
  }

 private:
  const TokenRange& of(std::int64_t token) const { return documents_[token]; }

  bool causal_;
  std::vector<TokenRange> documents_;
};

/// The columns, counted from `keys.begin`, that query `query` sees of a tile of keys; may be empty.
inline TokenRange visible_columns(const Visibility& visibility, std::int64_t query,
                                  TokenRange keys) {
  const TokenRange seen = visibility.keys(query);
  const std::int64_t begin = std::clamp(seen.begin, keys.begin, keys.end) - keys.begin;
  const std::int64_t end = std::clamp(seen.end, keys.begin, keys.end) - keys.begin;
  return {begin, std::max(begin, end)};
}

/// The rows of a range of tokens of one sequence and head.
template <class T>
Matrix<T> head_block(const HeadMatrix<T>& m, std::int64_t sequence, TokenRange tokens,
                     std::int64_t head) {
  return m.rows(sequence, tokens.begin, tokens.size(), head);
}

/// Calls `body(range)` for the pieces of a range, `size` tokens each.
template <class Body>
void for_each_tile(TokenRange range, std::int64_t size, Body&& body) {
  for (std::int64_t begin = range.begin; begin < range.end; begin += size)
    body(TokenRange{begin, std::min(begin + size, range.end)});
}

}  // namespace stowage::kernels::detail
