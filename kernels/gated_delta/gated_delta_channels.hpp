#pragma once

#include <cmath>

#include "kernels/gated_delta/gated_delta_arrays.hpp"

/// What a chunk of the gated delta rule needs where each column of q and k has a decay of its own.
///
/// A product of two tokens, sum_n x_in y_jn exp(G_in - G_jn) with G the sums of log alpha, is a
/// product of matrices only with factors exp(-G_jn), which overflow. So a chunk has 4 subchunks of
/// 16 tokens (arXiv 2510.26692). Between two of them a decay is one from the start of the later to
/// i, times one from j to that start: neither is above 1. Within a subchunk it is taken for each
/// pair of tokens and column.
namespace stowage::kernels::gated_delta {

constexpr int kSubchunk = 16;               // tokens of a subchunk
constexpr int kSubchunks = kC / kSubchunk;  // of a chunk
constexpr int kEarlier = kC - kSubchunk;    // tokens before the last subchunk
constexpr double kLeastLogDecay = -104;     // of fp32's least number: beyond it a decay is 0

template <class A>
STOWAGE_PORTABLE A sigmoid_of(A x) {
  return A{1} / (A{1} + std::exp(-x));
}
template <class A>
STOWAGE_PORTABLE A softplus_of(A x) {
  return (x > 0 ? x : A{0}) + std::log1p(std::exp(x > 0 ? -x : x));
}

/// The decays of a chunk and head, from sums of the workspace or a room: of each token, of its
/// logarithms from the start of its subchunk on. So a difference of two keeps its digits.
template <class A>
struct ChannelDecays {
  const A* sums;
  int key_dim, stride;

  template <class S>
  STOWAGE_PORTABLE ChannelDecays(const Arrays<S, A>& p, int chunk, int head)
      : sums(p.sums + p.at(chunk, head) * kC * p.key_dim), key_dim(p.key_dim), stride(p.key_dim) {}
  /// @param tile a copy of the workspace's
  STOWAGE_PORTABLE ChannelDecays(const A* tile, int dim)
      : sums(tile), key_dim(dim), stride(pitch(padded(dim))) {}

  STOWAGE_PORTABLE A sum(int i, int n) const { return sums[i * stride + n]; }
  /// Over subchunks [first, end).
  STOWAGE_PORTABLE A over(int first, int end, int n) const {
    A total{0};
    for (int subchunk = first; subchunk < end; ++subchunk)
      total += sum(subchunk * kSubchunk + kSubchunk - 1, n);
    return total;
  }
  /// From before the chunk to token i.
  STOWAGE_PORTABLE A entering(int i, int n) const {
    return std::exp(over(0, i / kSubchunk, n) + sum(i, n));
  }
  /// From the start of its subchunk to token i.
  STOWAGE_PORTABLE A inside(int i, int n) const { return std::exp(sum(i, n)); }
  /// From token j to the start of a later subchunk; of subchunk kSubchunks: to the chunk's end.
  STOWAGE_PORTABLE A until(int j, int subchunk, int n) const {
    return std::exp(over(j / kSubchunk, subchunk, n) - sum(j, n));
  }
  /// From token j to token i of the same subchunk.
  STOWAGE_PORTABLE A between(int j, int i, int n) const { return std::exp(sum(i, n) - sum(j, n)); }
  /// Over the chunk.
  STOWAGE_PORTABLE A through(int n) const { return std::exp(over(0, kSubchunks, n)); }

  /// Rows of q (or null) and k times the decays from before the chunk, those of `leaving` are k
  /// times those to its end.
  template <class Team>
  STOWAGE_PORTABLE void scale(const Team& team, A* q, A* k, A* leaving) const {
    const int wide = padded(key_dim), row = pitch(wide);
    team.each(kC * wide, [&](int at) {
      const int i = at / wide, n = at % wide, tile = i * row + n;
      const bool there = n < key_dim;
      leaving[tile] = there ? k[tile] * until(i, kSubchunks, n) : A{0};
      const A enters = there ? entering(i, n) : A{0};
      k[tile] *= enters;
      if (q != nullptr) q[tile] *= enters;
    });
  }
  /// Rows of a tile, each times its decay from the start of its subchunk: those of one subchunk.
  template <class Team>
  STOWAGE_PORTABLE void load_inside(const Team& team, const A* tile, int subchunk, A* to) const {
    const int wide = padded(key_dim), row = pitch(wide);
    team.each(kSubchunk * wide, [&](int at) {
      const int i = at / wide, n = at % wide, token = subchunk * kSubchunk + i;
      to[i * row + n] = n < key_dim ? tile[token * row + n] * inside(token, n) : A{0};
    });
  }
  /// The same of all subchunks before one, each times its decay to the start of that one.
  template <class Team>
  STOWAGE_PORTABLE void load_until(const Team& team, const A* tile, int subchunk, A* to) const {
    const int wide = padded(key_dim), row = pitch(wide);
    team.each(subchunk * kSubchunk * wide, [&](int at) {
      const int j = at / wide, n = at % wide;
      to[j * row + n] = n < key_dim ? tile[j * row + n] * until(j, subchunk, n) : A{0};
    });
  }
};

/// The sums that ChannelDecays reads, in the workspace and a tile; tokens behind the last decay
/// nothing.
template <class Team, class S, class A>
STOWAGE_PORTABLE void sum_channels(const Team& team, const Arrays<S, A>& p, int chunk, int head,
                                   A* tile) {
  const int row = pitch(padded(p.key_dim));
  A* const sums = p.sums + p.at(chunk, head) * kC * p.key_dim;
  const A rate = std::exp(static_cast<A>(p.a_log[head]));
  team.each(kSubchunks * p.key_dim, [&](int at) {
    const int first = at / p.key_dim * kSubchunk, n = at % p.key_dim;
    const A bias = static_cast<A>(p.dt_bias[head * p.key_dim + n]);
    A a[kSubchunk] = {}, sum{0};
    for (int i = 0; i < kSubchunk; ++i)
      if (first + i < p.count(chunk))
        a[i] = static_cast<A>(p.a[p.channel(chunk * kC + first + i, head) + n]);
    for (int i = first; i < first + kSubchunk; ++i) {
      if (i < p.count(chunk)) {
        const A log = -rate * softplus_of(a[i - first] + bias);
        sum += log > static_cast<A>(kLeastLogDecay) ? log : static_cast<A>(kLeastLogDecay);
      }
      sums[i * p.key_dim + n] = tile[i * row + n] = sum;
    }
  });
}

constexpr int kPairs = kSubchunk * (kSubchunk + 1) / 2;  // j <= i of a subchunk

/// The tokens of pair `at`, of all subchunks' in turn. A row and one as far from the other end of a
/// subchunk have as many pairs as any other two.
struct Pair {
  int i, j;
  STOWAGE_PORTABLE explicit Pair(int at) {
    const int first = at / kPairs * kSubchunk, in_two = kSubchunk + 1;
    const int upper = at % kPairs / in_two, rest = at % kPairs % in_two;
    const bool of_upper = rest <= upper;
    i = first + (of_upper ? upper : kSubchunk - 1 - upper);
    j = first + (of_upper ? rest : rest - upper - 1);
  }
};

/// l_ij = sum_n k_in k_jn P_ijn and x_ij = sum_n q_in k_jn P_ijn of j <= i, else 0.
/// @param spare 80 rows
template <class Team, class A>
STOWAGE_PORTABLE void channel_products(const Team& team, const ChannelDecays<A>& decays, const A* q,
                                       const A* k, A* l, A* x, A* spare) {
  const int wide = padded(decays.key_dim), row = pitch(wide);
  constexpr int kPitch = pitch(kC);
  A *const k_inside = spare + kEarlier * row, *const q_inside = k_inside + kSubchunk * row;
  for (int subchunk = 1; subchunk < kSubchunks; ++subchunk) {
    const int first = subchunk * kSubchunk;
    decays.load_until(team, k, subchunk, spare);
    decays.load_inside(team, k, subchunk, k_inside);
    decays.load_inside(team, q, subchunk, q_inside);
    team.sync();
    team.template product<false, true>(kSubchunk, first, wide, k_inside, row, spare, row,
                                       l + first * kPitch, kPitch, false);
    team.template product<false, true>(kSubchunk, first, wide, q_inside, row, spare, row,
                                       x + first * kPitch, kPitch, false);
    team.sync();
  }
  team.each(kC * kC, [&](int at) {
    const int i = at / kC, j = at % kC;
    if (j > i) l[i * kPitch + j] = x[i * kPitch + j] = A{0};
  });
  const auto add_pairs = [&](const A* rows, A* to) {
    team.row_sums(
        kSubchunks * kPairs, decays.key_dim,
        [&](int at, int n) {
          const Pair pair(at);
          return rows[pair.i * row + n] * k[pair.j * row + n] * decays.between(pair.j, pair.i, n);
        },
        [&](int at, A sum) {
          const Pair pair(at);
          to[pair.i * kPitch + pair.j] = sum;
        });
  };
  add_pairs(k, l);
  add_pairs(q, x);
}

/// to_i += sum over j < i of weight_ij P_ij from_j. @param spare 64 rows
template <class Team, class A>
STOWAGE_PORTABLE void add_earlier(const Team& team, const ChannelDecays<A>& decays,
                                  const A* weights, const A* from, A* to, A* spare) {
  const int dim = decays.key_dim, wide = padded(dim), row = pitch(wide);
  constexpr int kPitch = pitch(kC);
  A* const result = spare + kEarlier * row;
  for (int subchunk = 1; subchunk < kSubchunks; ++subchunk) {
    const int first = subchunk * kSubchunk;
    decays.load_until(team, from, subchunk, spare);
    team.sync();
    team.template product<false, false>(kSubchunk, wide, first, weights + first * kPitch, kPitch,
                                        spare, row, result, row, false);
    team.sync();
    team.each(kSubchunk * dim, [&](int at) {
      const int i = at / dim, n = at % dim;
      to[(first + i) * row + n] += result[i * row + n] * decays.inside(first + i, n);
    });
  }
  team.sync();
  team.each(kC * dim, [&](int at) {
    const int i = at / dim, n = at % dim;
    A sum{0};
    for (int j = i / kSubchunk * kSubchunk; j < i; ++j)
      sum += weights[i * kPitch + j] * decays.between(j, i, n) * from[j * row + n];
    to[i * row + n] += sum;
  });
  team.sync();
}

/// to_j += sum over i > j of weight_ij P_ij from_i. @param spare 64 rows
template <class Team, class A>
STOWAGE_PORTABLE void add_later(const Team& team, const ChannelDecays<A>& decays, const A* weights,
                                const A* from, A* to, A* spare) {
  const int dim = decays.key_dim, wide = padded(dim), row = pitch(wide);
  constexpr int kPitch = pitch(kC);
  A* const later = spare + kEarlier * row;
  for (int subchunk = 1; subchunk < kSubchunks; ++subchunk) {
    const int first = subchunk * kSubchunk;
    decays.load_inside(team, from, subchunk, later);
    team.sync();
    team.template product<true, false>(first, wide, kSubchunk, weights + first * kPitch, kPitch,
                                       later, row, spare, row, false);
    team.sync();
    team.each(first * dim, [&](int at) {
      const int j = at / dim, n = at % dim;
      to[j * row + n] += spare[j * row + n] * decays.until(j, subchunk, n);
    });
  }
  team.sync();
  team.each(kC * dim, [&](int at) {
    const int j = at / dim, n = at % dim;
    A sum{0};
    for (int i = j + 1; i < j / kSubchunk * kSubchunk + kSubchunk; ++i)
      sum += weights[i * kPitch + j] * decays.between(j, i, n) * from[i * row + n];
    to[j * row + n] += sum;
  });
  team.sync();
}

}  // namespace stowage::kernels::gated_delta
