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

/// The decays of a chunk and head, from the workspace's sums: of each token, of its logarithms from
/// the start of its subchunk on. So a difference of two keeps its digits.
template <class S, class A>
struct ChannelDecays {
  const A* sums;
  int key_dim;

  STOWAGE_PORTABLE ChannelDecays(const Arrays<S, A>& p, int chunk, int head)
      : sums(p.sums + p.at(chunk, head) * kC * p.key_dim), key_dim(p.key_dim) {}

  STOWAGE_PORTABLE A sum(int i, int n) const { return sums[i * key_dim + n]; }
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

  /// Rows of a tile of q or k times the decays from before the chunk, or to its end.
  template <class Team>
  STOWAGE_PORTABLE void scale_entering(const Team& team, A* tile) const {
    const int row = pitch(padded(key_dim));
    team.each(kC * key_dim, [&](int at) {
      const int i = at / key_dim, n = at % key_dim;
      tile[i * row + n] *= entering(i, n);
    });
  }
  template <class Team>
  STOWAGE_PORTABLE void scale_leaving(const Team& team, A* tile) const {
    const int row = pitch(padded(key_dim));
    team.each(kC * key_dim, [&](int at) {
      const int i = at / key_dim, n = at % key_dim;
      tile[i * row + n] *= until(i, kSubchunks, n);
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

/// The sums that ChannelDecays reads; tokens behind the last decay nothing.
template <class Team, class S, class A>
STOWAGE_PORTABLE void sum_channels(const Team& team, const Arrays<S, A>& p, int chunk, int head) {
  A* const sums = p.sums + p.at(chunk, head) * kC * p.key_dim;
  const A rate = std::exp(static_cast<A>(p.a_log[head]));
  team.each(kSubchunks * p.key_dim, [&](int at) {
    const int first = at / p.key_dim * kSubchunk, n = at % p.key_dim;
    const A bias = static_cast<A>(p.dt_bias[head * p.key_dim + n]);
    A sum{0};
    for (int i = first; i < first + kSubchunk; ++i) {
      if (i < p.count(chunk)) {
        const A a = static_cast<A>(p.a[p.channel(chunk * kC + i, head) + n]);
        const A log = -rate * softplus_of(a + bias);
        sum += log > static_cast<A>(kLeastLogDecay) ? log : static_cast<A>(kLeastLogDecay);
      }
      sums[i * p.key_dim + n] = sum;
    }
  });
}

/// l_ij = sum_n k_in k_jn P_ijn and x_ij = sum_n q_in k_jn P_ijn of j <= i, else 0.
/// @param spare 80 rows
template <class Team, class S, class A>
STOWAGE_PORTABLE void channel_products(const Team& team, const ChannelDecays<S, A>& decays,
                                       const A* q, const A* k, A* l, A* x, A* spare) {
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
    if (j < i / kSubchunk * kSubchunk) return;
    A of_k{0}, of_q{0};
    for (int n = 0; j <= i && n < decays.key_dim; ++n) {
      const A read = k[j * row + n] * decays.between(j, i, n);
      of_k += k[i * row + n] * read;
      of_q += q[i * row + n] * read;
    }
    l[i * kPitch + j] = of_k;
    x[i * kPitch + j] = of_q;
  });
}

/// to_i += sum over j < i of weight_ij P_ij from_j. @param spare 64 rows
template <class Team, class S, class A>
STOWAGE_PORTABLE void add_earlier(const Team& team, const ChannelDecays<S, A>& decays,
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
template <class Team, class S, class A>
STOWAGE_PORTABLE void add_later(const Team& team, const ChannelDecays<S, A>& decays,
                                const A* weights, const A* from, A* to, A* spare) {
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
