#pragma once

#include "kernels/gated_delta/gated_delta_chunk.hpp"

namespace stowage::kernels::gated_delta {

/// The gradients of q, k, b and a of a chunk and key head, from S before the chunk, dS' behind it,
/// U and W = T^T dU of all value heads that read it, one after the other:
///
///   D = dY U^T, E = -diag(beta) W U^T, both times P;  dV = diag(beta) W
///   dQ = diag(a) dY S + D K                        (a token reads)
///   dK = -diag(a) dV S + E K                       (a token corrects)
///      + diag(c) U dS' + D^T Q + E^T K             (a token is read)
///   dbeta_i = (W_i U_i) / beta_i
///
/// Decays that end at token i weigh q_i dQ_i and k_i times the second line; those that begin behind
/// it weigh k_i times the third. The difference, summed from the chunk's end, is the gradient of
/// log alpha. The terms of a token with itself have no decay, and are left out of it.
template <class Team, class S, class A>
STOWAGE_PORTABLE void gradients(const Team& team, const Arrays<S, A>& p, int chunk, int key_head,
                                A* shared) {
  const int wide = padded(p.key_dim), row = pitch(wide), heads = p.value_heads / p.key_heads;
  constexpr int kPitch = pitch(kC), kNarrow = pitch(kSlice);
  Room<A> room{shared};
  A *q = room.tile(kC, wide), *k = room.tile(kC, wide), *sum = room.tile(kC, wide);
  A *dq = room.tile(kC, wide), *dk = room.tile(kC, wide), *s = room.tile(kSlice, wide);
  A *d = room.tile(kC, kC), *e = room.tile(kC, kC);
  A *x = room.tile(kC, kSlice), *u = room.tile(kC, kSlice), *w = room.tile(kC, kSlice);
  A *dlog = room.vector(), *own = room.vector(), *own_beta = room.vector(), *read = room.vector();
  A *along = room.vector(), *along_k = room.vector(), *state = room.vector();
  const std::int64_t token = static_cast<std::int64_t>(chunk) * kC;
  const int count = p.count(chunk), all = kC * wide;
  const auto in_tile = [=](int at) { return at / wide * row + at % wide; };
  const auto load_state = [&](const A* from, int head, int first, int columns) {
    team.load(from + p.state(chunk, head) + static_cast<std::int64_t>(first) * p.key_dim, p.key_dim,
              columns, p.key_dim, kSlice, wide, s, nullptr);
  };
  const auto load_rows = [&](const A* from, int head, int first, int columns, A* to) {
    team.load(from + p.rows(chunk, head) + first, p.value_dim, kC, columns, kC, kSlice, to,
              nullptr);
  };
  team.each(all, [&](int at) { dq[in_tile(at)] = dk[in_tile(at)] = A{0}; });
  for (int member = 0; member < heads; ++member) {
    const int head = key_head * heads + member;
    const A* const log = p.field(chunk, head, kLog);
    const A* const beta = p.field(chunk, head, kBeta);
    const A* const enter = p.field(chunk, head, kEnter);
    const A* const leave = p.field(chunk, head, kLeave);
    load_keys(team, p, chunk, head, q, k, true);
    const std::int64_t stride = static_cast<std::int64_t>(p.value_heads) * p.value_dim;
    const auto columns_of = [&](int slice) {
      const int left = p.value_dim - slice * kSlice;
      return left < kSlice ? left : kSlice;
    };
    // A token reads.
    for (int slice = 0; slice < slices(p.value_dim); ++slice) {
      const int first = slice * kSlice, columns = columns_of(slice);
      team.load(p.dy + token * stride + static_cast<std::int64_t>(head) * p.value_dim + first,
                stride, count, columns, kC, kSlice, x, nullptr);
      load_rows(p.u, head, first, columns, u);
      load_rows(p.du, head, first, columns, w);
      load_state(p.states, head, first, columns);
      team.sync();
      team.template product<false, true>(kC, kC, kSlice, x, kNarrow, u, kNarrow, d, kPitch,
                                         slice > 0);
      team.template product<false, true>(kC, kC, kSlice, w, kNarrow, u, kNarrow, e, kPitch,
                                         slice > 0);
      team.template product<false, false>(kC, wide, kSlice, x, kNarrow, s, row, sum, row,
                                          slice > 0);
      team.sync();
    }
    team.each(kC, [&](int i) {
      own[i] = d[i * kPitch + i];
      own_beta[i] = e[i * kPitch + i];
    });
    team.each(all, [&](int at) { sum[in_tile(at)] *= enter[at / wide]; });
    team.sync();
    team.each(kC, [&](int j) {
      A reach{0};
      for (int i = 0; i < kC; ++i) {
        if (i > j) reach += log[i];
        const bool reaches = i > j && p.document(chunk, i) == p.document(chunk, j);
        const A decay = reaches ? std::exp(reach) : A{0};
        d[i * kPitch + j] *= decay;
        e[i * kPitch + j] *= -beta[i] * decay;
      }
    });
    team.sync();
    team.template product<false, false>(kC, wide, kC, d, kPitch, k, row, sum, row, true);
    team.sync();
    team.row_sums(
        kC, p.key_dim, [&](int i, int n) { return q[i * row + n] * sum[i * row + n]; },
        [&](int i, A total) { dlog[i] = total; });
    team.each(all, [&](int at) {
      const int tile = in_tile(at);
      dq[tile] += sum[tile] + own[at / wide] * k[tile];
    });
    team.sync();
    // A token corrects.
    for (int slice = 0; slice < slices(p.value_dim); ++slice) {
      const int first = slice * kSlice, columns = columns_of(slice);
      load_rows(p.du, head, first, columns, w);
      load_state(p.states, head, first, columns);
      team.sync();
      team.template product<false, false>(kC, wide, kSlice, w, kNarrow, s, row, sum, row,
                                          slice > 0);
      team.sync();
    }
    team.each(all, [&](int at) { sum[in_tile(at)] *= -enter[at / wide] * beta[at / wide]; });
    team.sync();
    team.template product<false, false>(kC, wide, kC, e, kPitch, k, row, sum, row, true);
    team.sync();
    team.row_sums(
        kC, p.key_dim, [&](int i, int n) { return k[i * row + n] * sum[i * row + n]; },
        [&](int i, A total) { dlog[i] += total; });
    team.each(all, [&](int at) { dk[in_tile(at)] += sum[in_tile(at)]; });
    team.sync();
    // A token is read.
    for (int slice = 0; slice < slices(p.value_dim); ++slice) {
      const int first = slice * kSlice, columns = columns_of(slice);
      load_rows(p.u, head, first, columns, u);
      load_state(p.dstates, head, first, columns);
      team.sync();
      team.template product<false, false>(kC, wide, kSlice, u, kNarrow, s, row, sum, row,
                                          slice > 0);
      const A* before =
          p.states + p.state(chunk, head) + static_cast<std::int64_t>(first) * p.key_dim;
      team.row_sums(
          columns, p.key_dim,
          [&](int c, int n) {
            return s[c * row + n] * before[static_cast<std::int64_t>(c) * p.key_dim + n];
          },
          [&](int c, A total) { state[c] = total + (slice > 0 ? state[c] : A{0}); });
      team.sync();
    }
    team.each(all, [&](int at) { sum[in_tile(at)] *= leave[at / wide]; });
    team.sync();
    team.row_sums(
        kC, p.key_dim, [&](int i, int n) { return k[i * row + n] * sum[i * row + n]; },
        [&](int i, A total) { read[i] = total; });
    team.sync();
    team.template product<true, false>(kC, wide, kC, d, kPitch, q, row, sum, row, true);
    team.sync();
    team.template product<true, false>(kC, wide, kC, e, kPitch, k, row, sum, row, true);
    team.sync();
    team.row_sums(
        kC, p.key_dim, [&](int i, int n) { return k[i * row + n] * sum[i * row + n]; },
        [&](int i, A total) { dlog[i] -= total; });
    team.each(all, [&](int at) {
      const int tile = in_tile(at);
      dk[tile] += sum[tile] + own[at / wide] * q[tile];
    });
    team.sync();
    // From the chunk's end on: the decay over all of it, and those to its end.
    const A rate = std::exp(static_cast<A>(p.a_log[head]));
    team.each(kC, [&](int i) {
      A total{0};
      for (int c = 0; c < (p.value_dim < kSlice ? p.value_dim : kSlice); ++c)
        total += enter[kC - 1] * state[c];
      for (int j = 0; j < kC; ++j) total += read[j];
      for (int j = i; j < kC; ++j) total += dlog[j];
      along[i] = total * log[i];
      along_k[i] = A{0};
      if (i >= count) return;
      const S* ba = p.ba + (token + i) * p.ba_stride;
      const A slope =
          sigmoid_of(static_cast<A>(ba[p.value_heads + head]) + static_cast<A>(p.dt_bias[head]));
      S* const to = p.dba + (token + i) * p.dba_stride;
      along_k[i] = -total * rate * slope;
      to[head] = static_cast<S>(own_beta[i] * (1 - beta[i]));
      to[p.value_heads + head] = static_cast<S>(along_k[i]);
    });
    team.sync();
    team.each(2, [&](int which) {
      A total{0};
      for (int i = 0; i < kC; ++i) total += which == 0 ? along[i] : along_k[i];
      p.partials[2 * p.at(chunk, head) + which] = total;
    });
    team.sync();
  }
  // Back through the norms: x is its head times its factor.
  const A* const q_norm = p.field(chunk, key_head * heads, kQNorm);
  const A* const k_norm = p.field(chunk, key_head * heads, kKNorm);
  team.row_sums(
      kC, p.key_dim, [&](int i, int n) { return q[i * row + n] * dq[i * row + n]; },
      [&](int i, A total) { along[i] = total * static_cast<A>(p.key_dim); });
  team.row_sums(
      kC, p.key_dim, [&](int i, int n) { return k[i * row + n] * dk[i * row + n]; },
      [&](int i, A total) { along_k[i] = total; });
  team.sync();
  team.each(count * p.key_dim, [&](int at) {
    const int i = at / p.key_dim, n = at % p.key_dim, tile = i * row + n;
    S* const to =
        p.dqkv + (token + i) * p.dqkv_stride + static_cast<std::int64_t>(key_head) * p.key_dim + n;
    to[0] = static_cast<S>(q_norm[i] * (dq[tile] - q[tile] * along[i]));
    to[p.keys()] = static_cast<S>(k_norm[i] * (dk[tile] - k[tile] * along_k[i]));
  });
}

/// The sums over chunks of da_log and ddt_bias, element i of the parts() of each head.
template <class S, class A>
STOWAGE_PORTABLE void finish(const Arrays<S, A>& p, int i) {
  const int parts = p.parts(), head = i / parts, part = i % parts;
  A* const to = part == 0 ? p.da_log + head : p.ddt_bias + head * (parts - 1) + part - 1;
  A sum{0};
  for (int chunk = 0; chunk < p.chunks(); ++chunk)
    sum += p.partials[p.at(chunk, head) * parts + part];
  *to = (p.accumulate ? *to : A{0}) + sum;
}

}  // namespace stowage::kernels::gated_delta
