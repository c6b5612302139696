#pragma once

#include "kernels/gated_delta/gated_delta_gradients.hpp"

namespace stowage::kernels::gated_delta {

/// gradients() where each column of q and k has a decay of its own: the same formulas, column by
/// column, so the gradient of log alpha is a row of columns too. The gradients of q and k are
/// summed over value heads in the workspace.
template <class Team, class S, class A>
STOWAGE_PORTABLE void channel_gradients(const Team& team, const Arrays<S, A>& p, int chunk,
                                        int key_head, A* shared) {
  const int dim = p.key_dim, wide = padded(dim), row = pitch(wide);
  const int heads = p.value_heads / p.key_heads;
  constexpr int kPitch = pitch(kC), kNarrow = pitch(kSlice);
  Room<A> room{shared};
  A *q = room.tile(kC, wide), *k = room.tile(kC, wide), *sum = room.tile(kC, wide);
  A *dlog = room.tile(kC, wide), *spare = room.tile(kC, wide), *s = room.tile(kSlice, wide);
  A *d = room.tile(kC, kC), *e = room.tile(kC, kC);
  A *x = room.tile(kC, kSlice), *u = room.tile(kC, kSlice), *w = room.tile(kC, kSlice);
  A *own = room.vector(), *own_beta = room.vector(), *along = room.vector();
  A *along_k = room.vector(), *total = room.tile(1, wide);
  const std::int64_t token = static_cast<std::int64_t>(chunk) * kC;
  const int count = p.count(chunk);
  A* const dq =
      p.dkeys + (static_cast<std::int64_t>(chunk) * p.key_heads + key_head) * 2 * kC * dim;
  A* const dk = dq + kC * dim;
  const auto load_state = [&](const A* from, int head, int first, int columns) {
    team.load(from + p.state(chunk, head) + static_cast<std::int64_t>(first) * dim, dim, columns,
              dim, kSlice, wide, s, nullptr);
  };
  const auto load_rows = [&](const A* from, int head, int first, int columns, A* to) {
    team.load(from + p.rows(chunk, head) + first, p.value_dim, kC, columns, kC, kSlice, to,
              nullptr);
  };
  /// body(tile's element, element of dq or dk, token, column)
  const auto each_key = [&](const auto& body) {
    team.each(kC * dim, [&](int at) { body(at / dim * row + at % dim, at, at / dim, at % dim); });
    team.sync();
  };
  for (int member = 0; member < heads; ++member) {
    const int head = key_head * heads + member;
    const ChannelDecays<A> decays(p, chunk, head);
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
    team.sync();
    team.each(kC * kC, [&](int at) {
      const int i = at / kC, j = at % kC, pair = i * kPitch + j;
      const bool reaches = i > j && p.document(chunk, i) == p.document(chunk, j);
      d[pair] = reaches ? d[pair] : A{0};
      e[pair] = reaches ? -beta[i] * e[pair] : A{0};
    });
    each_key([&](int tile, int, int i, int n) { sum[tile] *= enter[i] * decays.entering(i, n); });
    add_earlier(team, decays, d, k, sum, spare);
    each_key([&](int tile, int at, int i, int) {
      dlog[tile] = q[tile] * sum[tile];
      dq[at] = (member > 0 ? dq[at] : A{0}) + sum[tile] + own[i] * k[tile];
    });
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
    each_key([&](int tile, int, int i, int n) {
      sum[tile] *= -enter[i] * beta[i] * decays.entering(i, n);
    });
    add_earlier(team, decays, e, k, sum, spare);
    each_key([&](int tile, int at, int, int) {
      dlog[tile] += k[tile] * sum[tile];
      dk[at] = (member > 0 ? dk[at] : A{0}) + sum[tile];
    });
    // A token is read.
    for (int slice = 0; slice < slices(p.value_dim); ++slice) {
      const int first = slice * kSlice, columns = columns_of(slice);
      load_rows(p.u, head, first, columns, u);
      load_state(p.dstates, head, first, columns);
      team.sync();
      team.template product<false, false>(kC, wide, kSlice, u, kNarrow, s, row, sum, row,
                                          slice > 0);
      const A* const before =
          p.states + p.state(chunk, head) + static_cast<std::int64_t>(first) * dim;
      team.each(dim, [&](int n) {
        A of_state = slice > 0 ? total[n] : A{0};
        for (int c = 0; c < columns; ++c) of_state += s[c * row + n] * before[c * dim + n];
        total[n] = of_state;
      });
      team.sync();
    }
    each_key([&](int tile, int, int i, int n) {
      sum[tile] *= leave[i] * decays.until(i, kSubchunks, n);
    });
    // What the decays to the chunk's end weigh: those over all of it, and those behind its tokens.
    team.each(dim, [&](int n) {
      A read = enter[kC - 1] * decays.through(n) * total[n];
      for (int i = 0; i < kC; ++i) read += k[i * row + n] * sum[i * row + n];
      total[n] = read;
    });
    team.sync();
    add_later(team, decays, d, q, sum, spare);
    add_later(team, decays, e, k, sum, spare);
    each_key([&](int tile, int at, int i, int) {
      dlog[tile] -= k[tile] * sum[tile];
      dk[at] += sum[tile] + own[i] * q[tile];
    });
    // From the chunk's end on.
    const A rate = std::exp(static_cast<A>(p.a_log[head]));
    A* const partials = p.partials + p.at(chunk, head) * p.parts();
    team.each(dim, [&](int n) {
      const A bias = static_cast<A>(p.dt_bias[head * dim + n]);
      A behind = total[n], of_rate{0}, of_bias{0};
      for (int first = kC - kSubchunk; first >= 0; first -= kSubchunk) {
        A a[kSubchunk] = {};
        for (int i = 0; i < kSubchunk; ++i)
          if (first + i < count)
            a[i] = static_cast<A>(p.a[p.channel(chunk * kC + first + i, head) + n]) + bias;
        for (int i = kSubchunk - 1; i >= 0; --i) {
          behind += dlog[(first + i) * row + n];
          if (first + i >= count) continue;
          const A da = -behind * rate * sigmoid_of(a[i]);
          p.da[p.channel(chunk * kC + first + i, head) + n] = static_cast<S>(da);
          of_rate -= behind * rate * softplus_of(a[i]);
          of_bias += da;
        }
      }
      partials[1 + n] = of_bias;
      total[n] = of_rate;
    });
    team.each(count, [&](int i) {
      p.dba[(token + i) * p.dba_stride + head] = static_cast<S>(own_beta[i] * (1 - beta[i]));
    });
    team.sync();
    team.each(1, [&](int) {
      A of_rate{0};
      for (int n = 0; n < dim; ++n) of_rate += total[n];
      partials[0] = of_rate;
    });
    team.sync();
  }
  // Back through the norms: x is its head times its factor.
  const A* const q_norm = p.field(chunk, key_head * heads, kQNorm);
  const A* const k_norm = p.field(chunk, key_head * heads, kKNorm);
  team.row_sums(
      kC, dim, [&](int i, int n) { return q[i * row + n] * dq[i * dim + n]; },
      [&](int i, A sums) { along[i] = sums * static_cast<A>(dim); });
  team.row_sums(
      kC, dim, [&](int i, int n) { return k[i * row + n] * dk[i * dim + n]; },
      [&](int i, A sums) { along_k[i] = sums; });
  team.sync();
  team.each(count * dim, [&](int at) {
    const int i = at / dim, n = at % dim, tile = i * row + n;
    S* const to =
        p.dqkv + (token + i) * p.dqkv_stride + static_cast<std::int64_t>(key_head) * dim + n;
    to[0] = static_cast<S>(q_norm[i] * (dq[at] - q[tile] * along[i]));
    to[p.keys()] = static_cast<S>(k_norm[i] * (dk[at] - k[tile] * along_k[i]));
  });
}

}  // namespace stowage::kernels::gated_delta
