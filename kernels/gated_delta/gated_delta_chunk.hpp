#pragma once

#include <cmath>

#include "kernels/gated_delta/gated_delta_channels.hpp"

namespace stowage::kernels::gated_delta {

/// The heads of q and k of a chunk's tokens, with or without their factors.
template <class Team, class S, class A>
STOWAGE_PORTABLE void load_keys(const Team& team, const Arrays<S, A>& p, int chunk, int head, A* q,
                                A* k, bool normed) {
  const S* from = p.qkv + static_cast<std::int64_t>(chunk) * kC * p.qkv_stride +
                  static_cast<std::int64_t>(p.key_head(head)) * p.key_dim;
  const int count = p.count(chunk);
  if (q != nullptr)
    team.load(from, p.qkv_stride, count, p.key_dim, kC, padded(p.key_dim), q,
              normed ? p.field(chunk, head, kQNorm) : nullptr);
  team.load(from + p.keys(), p.qkv_stride, count, p.key_dim, kC, padded(p.key_dim), k,
            normed ? p.field(chunk, head, kKNorm) : nullptr);
}

/// x = (I + l)^-1, l strictly lower: blocks of 16 by columns, then pairs of blocks by products.
template <class Team, class A>
STOWAGE_PORTABLE void invert(const Team& team, const A* l, A* x, A* scratch) {
  constexpr int kBlock = 16, kPitch = pitch(kC);
  team.each(kC, [&](int j) {
    const int end = j / kBlock * kBlock + kBlock;
    for (int i = 0; i < kC; ++i) x[i * kPitch + j] = i == j ? A{1} : A{0};
    for (int i = j + 1; i < end; ++i) {
      A sum{0};
      for (int m = j; m < i; ++m) sum += l[i * kPitch + m] * x[m * kPitch + j];
      x[i * kPitch + j] = -sum;
    }
  });
  team.sync();
  for (int half = kBlock; half < kC; half *= 2) {
    const int pairs = kC / (2 * half), size = half * half;
    // Below the diagonal: -T22 (L21 T11).
    team.each(pairs * size, [&](int at) {
      const int first = at / size * 2 * half, i = at % size / half, j = at % half;
      A sum{0};
      for (int m = j; m < half; ++m)
        sum += l[(first + half + i) * kPitch + first + m] * x[(first + m) * kPitch + first + j];
      scratch[at] = sum;
    });
    team.sync();
    team.each(pairs * size, [&](int at) {
      const int first = at / size * 2 * half, i = at % size / half, j = at % half;
      const A* const column = scratch + at / size * size + j;
      A sum{0};
      for (int m = 0; m <= i; ++m)
        sum += x[(first + half + i) * kPitch + first + half + m] * column[m * half];
      x[(first + half + i) * kPitch + first + j] = -sum;
    });
    team.sync();
  }
}

/// Gates, norms, T and M of a chunk and head, for all kernels that follow.
template <class Team, class S, class A>
STOWAGE_PORTABLE void prepare(const Team& team, const Arrays<S, A>& p, int chunk, int head,
                              A* shared, double epsilon) {
  const int wide = padded(p.key_dim), row = pitch(wide), side = p.side();
  constexpr int kPitch = pitch(kC);
  Room<A> room{shared};
  A *q = room.tile(kC, wide), *k = room.tile(kC, wide);
  A *l = room.tile(kC, kC), *x = room.tile(kC, kC);
  A *log = room.vector(), *beta = room.vector(), *q_norm = room.vector(), *k_norm = room.vector();
  A* const spare = p.channel_decay ? room.tile(kC + kSlice, wide) : nullptr;
  A* const sums = p.channel_decay ? room.tile(kC, wide) : nullptr;
  A* const fields = p.fields + p.at(chunk, head) * kFields * kC;
  load_keys(team, p, chunk, head, q, k, false);
  if (p.channel_decay) sum_channels(team, p, chunk, head, sums);
  const A rate = std::exp(static_cast<A>(p.a_log[head]));
  team.each(kC, [&](int i) {
    const bool there = i < p.count(chunk);
    const S* ba = p.ba + (static_cast<std::int64_t>(chunk) * kC + i) * p.ba_stride;
    log[i] = there && !p.channel_decay
                 ? -rate * softplus_of(static_cast<A>(ba[p.value_heads + head]) +
                                       static_cast<A>(p.dt_bias[head]))
                 : A{0};
    beta[i] = there ? sigmoid_of(static_cast<A>(ba[head])) : A{0};
  });
  team.sync();
  const A scale = A{1} / std::sqrt(static_cast<A>(p.key_dim));
  team.row_sums(
      kC, p.key_dim, [&](int i, int n) { return q[i * row + n] * q[i * row + n]; },
      [&](int i, A sum) { q_norm[i] = scale / std::sqrt(sum + static_cast<A>(epsilon)); });
  team.row_sums(
      kC, p.key_dim, [&](int i, int n) { return k[i * row + n] * k[i * row + n]; },
      [&](int i, A sum) { k_norm[i] = A{1} / std::sqrt(sum + static_cast<A>(epsilon)); });
  team.sync();
  team.each(kC, [&](int i) {
    A before{0}, behind{0};
    for (int j = 0; j <= i; ++j) before += log[j];
    for (int j = i + 1; j < kC; ++j) behind += log[j];
    const std::int32_t document = p.document(chunk, i);
    fields[kLog * kC + i] = log[i];
    fields[kBeta * kC + i] = beta[i];
    fields[kEnter * kC + i] = document == p.entering(chunk) ? std::exp(before) : A{0};
    fields[kLeave * kC + i] = document == p.document(chunk, kC - 1) ? std::exp(behind) : A{0};
    fields[kQNorm * kC + i] = q_norm[i];
    fields[kKNorm * kC + i] = k_norm[i];
  });
  team.each(kC * wide, [&](int at) {
    const int i = at / wide, n = at % wide;
    q[i * row + n] *= q_norm[i];
    k[i * row + n] *= k_norm[i];
  });
  team.sync();
  if (p.channel_decay) {
    channel_products(team, ChannelDecays<A>(sums, p.key_dim), q, k, l, x, spare);
  } else {
    team.template product<false, true>(kC, kC, wide, k, row, k, row, l, kPitch, false);
    team.template product<false, true>(kC, kC, wide, q, row, k, row, x, kPitch, false);
  }
  team.sync();
  team.each(kC, [&](int j) {
    A sum{0};
    for (int i = 0; i < kC; ++i) {
      if (i > j) sum += log[i];
      const bool reaches = i >= j && p.document(chunk, i) == p.document(chunk, j);
      const A decay = reaches ? std::exp(sum) : A{0};
      l[i * kPitch + j] *= i > j ? decay * beta[i] : A{0};
      x[i * kPitch + j] *= decay;
    }
  });
  team.sync();
  A* const scores = p.scores + p.tile(chunk, head);
  team.each(p.count(chunk) * side, [&](int at) { scores[at] = x[at / side * kPitch + at % side]; });
  team.sync();
  invert(team, l, x, q);
  A* const inverse = p.inverse + p.tile(chunk, head);
  team.each(p.count(chunk) * side,
            [&](int at) { inverse[at] = x[at / side * kPitch + at % side]; });
}

/// What a walk has of a chunk beside its tiles where each column has a decay.
template <class A>
struct ChannelTiles {
  A *sums = nullptr, *leaving = nullptr;

  STOWAGE_PORTABLE ChannelTiles(Room<A>& room, bool there, int wide) {
    if (!there) return;
    sums = room.tile(kC, wide);
    leaving = room.tile(kC, wide);
  }
  template <class Team, class S>
  STOWAGE_PORTABLE void load(const Team& team, const Arrays<S, A>& p, int chunk, int head) const {
    if (sums != nullptr)
      team.load(p.sums + p.at(chunk, head) * kC * p.key_dim, p.key_dim, kC, p.key_dim, kC,
                padded(p.key_dim), sums, nullptr);
  }
  /// Decays of q (or null) and k from before the chunk; gives k with those to its end. Without
  /// decays of columns nothing is done, and k is given.
  template <class Team>
  STOWAGE_PORTABLE A* scale(const Team& team, int key_dim, A* q, A* k) const {
    if (sums == nullptr) return k;
    ChannelDecays<A>(sums, key_dim).scale(team, q, k, leaving);
    team.sync();
    return leaving;
  }
};

/// 16 rows of S, or of its gradient, times the decay over a chunk.
template <class Team, class S, class A>
STOWAGE_PORTABLE void scale_state(const Team& team, const Arrays<S, A>& p, int chunk, int head,
                                  const A* sums, A* s) {
  const int wide = padded(p.key_dim), row = pitch(wide);
  const A through = p.field(chunk, head, kEnter)[kC - 1];
  if (p.channel_decay) {
    const ChannelDecays<A> decays(sums, p.key_dim);
    team.each(kSlice * p.key_dim, [&](int at) {
      const int n = at % p.key_dim;
      s[at / p.key_dim * row + n] *= through * decays.through(n);
    });
  } else {
    team.each(kSlice * wide, [&](int at) { s[at / wide * row + at % wide] *= through; });
  }
}

/// S, Y and U of 16 columns of V of a head, chunk after chunk. The slices behind those of V are the
/// rows of the identity, with no values: what the tokens do to a state.
template <class Team, class S, class A>
STOWAGE_PORTABLE void scan(const Team& team, const Arrays<S, A>& p, int head, int slice,
                           A* shared) {
  const int wide = padded(p.key_dim), row = pitch(wide), side = p.side();
  constexpr int kPitch = pitch(kC), kNarrow = pitch(kSlice);
  Room<A> room{shared};
  A *q = room.tile(kC, wide), *k = room.tile(kC, wide), *s = room.tile(kSlice, wide);
  A *inverse = room.tile(kC, kC), *scores = room.tile(kC, kC);
  A *r = room.tile(kC, kSlice), *u = room.tile(kC, kSlice);
  A *x = room.tile(kC, kSlice), *o = room.tile(kC, kSlice);
  const ChannelTiles<A> channels(room, p.channel_decay, wide);
  const bool values = slice < slices(p.value_dim);
  const int first = (values ? slice : slice - slices(p.value_dim)) * kSlice;
  const int limit = values ? p.value_dim : p.key_dim;
  const int columns = limit - first < kSlice ? limit - first : kSlice;
  team.each(kSlice * wide, [&](int at) {
    const int d = at / wide, n = at % wide;
    A start{0};
    if (d < columns && n < p.key_dim) {
      if (!values)
        start = first + d == n ? A{1} : A{0};
      else if (p.initial_state != nullptr)
        start = p.initial_state[(static_cast<std::int64_t>(head) * p.value_dim + first + d) *
                                    p.key_dim +
                                n];
    }
    s[d * row + n] = start;
  });
  for (int chunk = 0; chunk < p.chunks(); ++chunk) {
    const std::int64_t token = static_cast<std::int64_t>(chunk) * kC;
    const A* const beta = p.field(chunk, head, kBeta);
    const A* const enter = p.field(chunk, head, kEnter);
    const A* const leave = p.field(chunk, head, kLeave);
    load_keys(team, p, chunk, head, p.y != nullptr ? q : nullptr, k, true);
    team.load(p.inverse + p.tile(chunk, head), side, p.count(chunk), side, kC, kC, inverse,
              nullptr);
    if (p.y != nullptr)
      team.load(p.scores + p.tile(chunk, head), side, p.count(chunk), side, kC, kC, scores,
                nullptr);
    team.load(p.qkv + token * p.qkv_stride + 2 * p.keys() +
                  static_cast<std::int64_t>(head) * p.value_dim + (values ? first : 0),
              p.qkv_stride, values ? p.count(chunk) : 0, columns, kC, kSlice, r, nullptr);
    channels.load(team, p, chunk, head);
    team.sync();
    const A* const leaving = channels.scale(team, p.key_dim, p.y != nullptr ? q : nullptr, k);
    if (p.states != nullptr)
      team.each(columns * p.key_dim, [&](int at) {
        const int d = at / p.key_dim, n = at % p.key_dim;
        p.states[p.state(chunk, head) + static_cast<std::int64_t>(first + d) * p.key_dim + n] =
            s[d * row + n];
      });
    team.template product<false, true>(kC, kSlice, wide, k, row, s, row, x, kNarrow, false);
    if (p.y != nullptr)
      team.template product<false, true>(kC, kSlice, wide, q, row, s, row, o, kNarrow, false);
    team.sync();
    team.each(kC * kSlice, [&](int at) {
      const int i = at / kSlice, e = i * kNarrow + at % kSlice;
      r[e] = beta[i] * (r[e] - enter[i] * x[e]);
    });
    team.sync();
    team.template product<false, false>(kC, kSlice, kC, inverse, kPitch, r, kNarrow, u, kNarrow,
                                        false);
    team.sync();
    if (p.y != nullptr) {
      team.template product<false, false>(kC, kSlice, kC, scores, kPitch, u, kNarrow, x, kNarrow,
                                          false);
      team.sync();
    }
    team.each(kC * kSlice, [&](int at) {
      const int i = at / kSlice, d = at % kSlice, e = i * kNarrow + d;
      if (d < columns) {
        if (p.y != nullptr && i < p.count(chunk))
          p.y[((token + i) * p.value_heads + head) * p.value_dim + first + d] =
              static_cast<S>(enter[i] * o[e] + x[e]);
        if (p.u != nullptr)
          p.u[p.rows(chunk, head) + static_cast<std::int64_t>(i) * p.value_dim + first + d] = u[e];
      }
      r[e] = leave[i] * u[e];
    });
    scale_state(team, p, chunk, head, channels.sums, s);
    team.sync();
    team.template product<true, false>(kSlice, wide, kC, r, kNarrow, leaving, row, s, row, true);
    team.sync();
  }
  A* const to = values ? p.final_state : p.transition;
  if (to != nullptr)
    team.each(columns * p.key_dim, [&](int at) {
      const int d = at / p.key_dim, n = at % p.key_dim;
      to[(static_cast<std::int64_t>(head) * limit + first + d) * p.key_dim + n] = s[d * row + n];
    });
}

/// The gradients of S and V of 16 columns of V of a head, from the last chunk to the first:
///
///   dU = M^T dY + diag(c) K dS'^T,  W = T^T dU,  dV = diag(beta) W
///   dS = b dS' + dY^T diag(a) Q - dV^T diag(a) K
template <class Team, class S, class A>
STOWAGE_PORTABLE void adjoint(const Team& team, const Arrays<S, A>& p, int head, int slice,
                              A* shared) {
  const int wide = padded(p.key_dim), row = pitch(wide), side = p.side();
  constexpr int kPitch = pitch(kC), kNarrow = pitch(kSlice);
  Room<A> room{shared};
  A *q = room.tile(kC, wide), *k = room.tile(kC, wide), *ds = room.tile(kSlice, wide);
  A *inverse = room.tile(kC, kC), *scores = room.tile(kC, kC);
  A *dy = room.tile(kC, kSlice), *x = room.tile(kC, kSlice), *w = room.tile(kC, kSlice);
  const ChannelTiles<A> channels(room, p.channel_decay, wide);
  const int first = slice * kSlice;
  const int columns = p.value_dim - first < kSlice ? p.value_dim - first : kSlice;
  team.each(kSlice * wide, [&](int at) {
    const int d = at / wide, n = at % wide;
    const bool there = d < columns && n < p.key_dim && p.dfinal_state != nullptr;
    ds[d * row + n] =
        there ? p.dfinal_state[(static_cast<std::int64_t>(head) * p.value_dim + first + d) *
                                   p.key_dim +
                               n]
              : A{0};
  });
  for (int chunk = p.chunks() - 1; chunk >= 0; --chunk) {
    const std::int64_t token = static_cast<std::int64_t>(chunk) * kC;
    const A* const beta = p.field(chunk, head, kBeta);
    const A* const enter = p.field(chunk, head, kEnter);
    const A* const leave = p.field(chunk, head, kLeave);
    load_keys(team, p, chunk, head, q, k, true);
    team.load(p.inverse + p.tile(chunk, head), side, p.count(chunk), side, kC, kC, inverse,
              nullptr);
    team.load(p.scores + p.tile(chunk, head), side, p.count(chunk), side, kC, kC, scores, nullptr);
    const std::int64_t stride = static_cast<std::int64_t>(p.value_heads) * p.value_dim;
    team.load(p.dy + token * stride + static_cast<std::int64_t>(head) * p.value_dim + first, stride,
              p.count(chunk), columns, kC, kSlice, dy, nullptr);
    channels.load(team, p, chunk, head);
    team.sync();
    const A* const leaving = channels.scale(team, p.key_dim, q, k);
    if (p.dstates != nullptr)
      team.each(columns * p.key_dim, [&](int at) {
        const int d = at / p.key_dim, n = at % p.key_dim;
        p.dstates[p.state(chunk, head) + static_cast<std::int64_t>(first + d) * p.key_dim + n] =
            ds[d * row + n];
      });
    team.template product<true, false>(kC, kSlice, kC, scores, kPitch, dy, kNarrow, x, kNarrow,
                                       false);
    team.template product<false, true>(kC, kSlice, wide, leaving, row, ds, row, w, kNarrow, false);
    team.sync();
    team.each(kC * kSlice, [&](int at) {
      const int i = at / kSlice, e = i * kNarrow + at % kSlice;
      x[e] += leave[i] * w[e];
    });
    team.sync();
    team.template product<true, false>(kC, kSlice, kC, inverse, kPitch, x, kNarrow, w, kNarrow,
                                       false);
    team.sync();
    team.each(kC * kSlice, [&](int at) {
      const int i = at / kSlice, d = at % kSlice, e = i * kNarrow + d;
      const A dv = beta[i] * w[e];
      if (d < columns) {
        if (p.du != nullptr)
          p.du[p.rows(chunk, head) + static_cast<std::int64_t>(i) * p.value_dim + first + d] = w[e];
        if (p.dqkv != nullptr && i < p.count(chunk))
          p.dqkv[(token + i) * p.dqkv_stride + 2 * p.keys() +
                 static_cast<std::int64_t>(head) * p.value_dim + first + d] = static_cast<S>(dv);
      }
      dy[e] *= enter[i];
      x[e] = -enter[i] * dv;
    });
    scale_state(team, p, chunk, head, channels.sums, ds);
    team.sync();
    team.template product<true, false>(kSlice, wide, kC, dy, kNarrow, q, row, ds, row, true);
    team.sync();
    team.template product<true, false>(kSlice, wide, kC, x, kNarrow, k, row, ds, row, true);
    team.sync();
  }
  if (p.dinitial_state != nullptr)
    team.each(columns * p.key_dim, [&](int at) {
      const int d = at / p.key_dim, n = at % p.key_dim;
      p.dinitial_state[(static_cast<std::int64_t>(head) * p.value_dim + first + d) * p.key_dim +
                       n] = ds[d * row + n];
    });
}

}  // namespace stowage::kernels::gated_delta
