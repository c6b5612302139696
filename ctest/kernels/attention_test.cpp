#include "kernels/attention/attention.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "ctest/kernels/attention_run.hpp"
#include "execution/error.hpp"
#include "kernels/attention/attention_layout.hpp"

namespace stowage::kernels::test {
namespace {

struct Case {
  AttentionShape shape;
  Packed packed;

  std::int64_t q_width() const { return shape.heads * shape.head_dim; }
  std::int64_t kv_width() const { return shape.kv_heads * shape.head_dim; }
};

// {H, K, P}: one token, many short documents, and documents that cross the tiles of 64 and 128.
std::vector<Case> cases() {
  std::vector<Case> all;
  for (const bool causal : {true, false}) {
    all.push_back({{1, 1, 2, causal, 0.7}, Packed({1})});
    all.push_back({{4, 2, 3, causal, 0.6}, Packed({3, 1, 0, 4, 2}, 2)});
    all.push_back({{2, 1, 4, causal, 0.5}, Packed({60, 5, 1, 80}, 4)});
    all.push_back({{2, 2, 5, causal, 0.4}, Packed({141})});
  }
  return all;
}

Case large_case() { return {{4, 2, 32, true, 0.1767}, Packed({7, 250, 3, 130, 1}, 9)}; }

struct Inputs {
  Inputs(Random& random, const Case& c, Dtype storage)
      : q(rounded(random.normal(c.packed.tokens * c.q_width()), storage)),
        k(rounded(random.normal(c.packed.tokens * c.kv_width()), storage)),
        v(rounded(random.normal(c.packed.tokens * c.kv_width()), storage)),
        d_o(rounded(random.normal(c.packed.tokens * c.q_width()), storage)) {}
  Values q, k, v, d_o;
};

struct Output {
  Values o, lse;
};

// Row by row, as the formula is written.
Output plain_forward(const Case& c, const Inputs& in) {
  const std::int64_t n = c.packed.tokens, dim = c.shape.head_dim;
  const std::int64_t group = c.shape.heads / c.shape.kv_heads;
  Output out{Values(in.q.size(), 0), Values(at(c.shape.heads * n))};
  for (std::int64_t h = 0; h < c.shape.heads; ++h)
    for (std::int64_t i = 0; i < n; ++i) {
      const auto kv = [&](std::int64_t j, std::int64_t p) {
        return at(j * c.kv_width() + h / group * dim + p);
      };
      double sum = 0;
      Values weight(at(n), 0);
      for (std::int64_t j = 0; j < n; ++j) {
        if (!c.packed.same(i, j) || (c.shape.causal && j > i)) continue;
        double score = 0;
        for (std::int64_t p = 0; p < dim; ++p)
          score += in.q[at(i * c.q_width() + h * dim + p)] * in.k[kv(j, p)];
        sum += weight[at(j)] = std::exp(c.shape.scale * score);
      }
      out.lse[at(h * n + i)] = std::log(sum);
      for (std::int64_t j = 0; j < n; ++j)
        for (std::int64_t p = 0; p < dim; ++p)
          out.o[at(i * c.q_width() + h * dim + p)] += weight[at(j)] / sum * in.v[kv(j, p)];
    }
  return out;
}

// One tensor (n, (H + 2K) P), as a projection makes it.
Array fused(const Case& c, Dtype storage, const Inputs& in) {
  const std::int64_t n = c.packed.tokens, q = c.q_width(), kv = c.kv_width();
  Values all;
  for (std::int64_t i = 0; i < n; ++i) {
    all.insert(all.end(), in.q.begin() + i * q, in.q.begin() + (i + 1) * q);
    all.insert(all.end(), in.k.begin() + i * kv, in.k.begin() + (i + 1) * kv);
    all.insert(all.end(), in.v.begin() + i * kv, in.v.begin() + (i + 1) * kv);
  }
  return {storage, {n, q + 2 * kv}, all};
}

struct Gradients {
  Values dq, dk, dv;
};

struct Results {
  Output output;
  Gradients gradients;
};

// The rows [first, first + count) of (n, width).
Values rows_of(const Values& all, std::int64_t first, std::int64_t count, std::int64_t width) {
  return {all.begin() + first * width, all.begin() + (first + count) * width};
}

// Forward, then backward from the stored results.
Results run(const Case& c, Dtype storage, const Inputs& in) {
  const std::int64_t n = c.packed.tokens, q = c.q_width(), kv = c.kv_width();
  const Dtype sums = execution::accumulation(storage);
  const Array qkv = fused(c, storage, in), cu_seqlens = c.packed.cu_seqlens();
  const Array seq_idx = c.packed.seq_idx(), d_o(storage, {n, q}, in.d_o);
  const Array o(storage, {n, q}), lse(sums, {c.shape.heads, n});
  const Array dq(storage, {n, q + 1}), dk(storage, {n, kv}), dv(storage, {n, kv + 2});
  const AttentionPair pair(c.shape, c.packed, storage);
  const Array order = pair.order(), room = pair.room();
  const auto in_columns = [&](const Array& all, std::int64_t first) {
    return heads(all, c.shape.head_dim, first);
  };
  on_queue([&](Queue& queue) {
    pair.run(queue, {.q = in_columns(qkv, 0),
                     .k = in_columns(qkv, q),
                     .v = in_columns(qkv, q + kv),
                     .o = in_columns(o, 0),
                     .lse = lse,
                     .cu_seqlens = cu_seqlens,
                     .seq_idx = seq_idx,
                     .d_o = in_columns(d_o, 0),
                     .dq = in_columns(dq, 1),
                     .dk = in_columns(dk, 0),
                     .dv = in_columns(dv, 0),
                     .order = order,
                     .room = room});
  });
  return {{o.values(), lse.values()}, {columns_of(dq, 1, q), dk.values(), columns_of(dv, 0, kv)}};
}

// The same for queries [first, first + m) against the keys and values of all tokens; o in a column
// of its own, as run() has it. `wide`: dk and dv in the accumulation dtype.
Results run_part(Case c, Dtype storage, const Inputs& in, std::int64_t first, std::int64_t m,
                 bool wide = false) {
  const std::int64_t n = c.packed.tokens, width = c.q_width(), kv_width = c.kv_width();
  c.shape.first_query = first;
  const Dtype sums = execution::accumulation(storage);
  const Array q(storage, {m, width}, rows_of(in.q, first, m, width));
  const Array d_o(storage, {m, width}, rows_of(in.d_o, first, m, width));
  const Array k(storage, {n, kv_width}, in.k), v(storage, {n, kv_width}, in.v);
  const Array cu_seqlens = c.packed.cu_seqlens(), seq_idx = c.packed.seq_idx();
  const Array o(storage, {m, width}), lse(sums, {c.shape.heads, m}), dq(storage, {m, width});
  const Array dk(wide ? sums : storage, {n, kv_width}), dv(wide ? sums : storage, {n, kv_width});
  const AttentionPair pair(c.shape, c.packed, m, storage, wide);
  const Array order = pair.order(), room = pair.room();
  const auto whole = [&](const Array& all) { return heads(all, c.shape.head_dim); };
  on_queue([&](Queue& queue) {
    pair.run(queue, {.q = whole(q),
                     .k = whole(k),
                     .v = whole(v),
                     .o = whole(o),
                     .lse = lse,
                     .cu_seqlens = cu_seqlens,
                     .seq_idx = seq_idx,
                     .d_o = whole(d_o),
                     .dq = whole(dq),
                     .dk = whole(dk),
                     .dv = whole(dv),
                     .order = order,
                     .room = room});
  });
  return {{o.values(), lse.values()}, {dq.values(), dk.values(), dv.values()}};
}

// Of (H, n): the columns [first, first + count).
Values lse_of(const Case& c, const Values& all, std::int64_t first, std::int64_t count) {
  Values part;
  for (std::int64_t h = 0; h < c.shape.heads; ++h)
    for (std::int64_t t = first; t < first + count; ++t)
      part.push_back(all[at(h * c.packed.tokens + t)]);
  return part;
}

// Whether it throws since the queries reach beyond the tokens.
template <class F>
bool refused(F&& f) {
  try {
    f();
  } catch (const execution::Error& error) {
    EXPECT_NE(std::string(error.what()).find("reach beyond the tokens"), std::string::npos);
    return true;
  }
  return false;
}

// Terms of the longest sums: keys of a query, or queries of a key and its heads.
double terms(const Case& c) {
  return static_cast<double>(c.packed.tokens * c.shape.heads + c.shape.head_dim);
}

TEST(attention, forward_is_the_formula) {
  Random random;
  std::vector<Case> all = cases();
  all.push_back(large_case());
  for (const Case& c : all)
    for (const Dtype storage : kFloatingTypes) {
      const Inputs in(random, c, storage);
      const Output actual = run(c, storage, in).output, expected = plain_forward(c, in);
      EXPECT_LT(relative_error(actual.o, expected.o), tolerance(storage, terms(c), 8));
      EXPECT_LT(rms_difference(actual.lse, expected.lse),
                tolerance(execution::accumulation(storage), terms(c), 8));
    }
}

TEST(attention, gradients_by_finite_differences) {
  Random random;
  for (const Case& c : cases()) {
    if (c.packed.tokens > 20) continue;
    const Inputs in(random, c, Dtype::fp64);
    const Gradients gradients = run(c, Dtype::fp64, in).gradients;
    const auto numeric = [&](Values Inputs::*input) {
      return numeric_gradient(in.*input, [&](const Values& changed) {
        Inputs other = in;
        other.*input = changed;
        return dot(plain_forward(c, other).o, in.d_o);
      });
    };
    if (c.packed.tokens > 1) {
      EXPECT_LT(relative_error(gradients.dq, numeric(&Inputs::q)), 1e-7);
      EXPECT_LT(relative_error(gradients.dk, numeric(&Inputs::k)), 1e-7);
    }
    EXPECT_LT(relative_error(gradients.dv, numeric(&Inputs::v)), 1e-8);
  }
}

// Where finite differences of every element would be slow: along random directions.
TEST(attention, gradients_across_tiles) {
  Random random;
  std::vector<Case> all = cases();
  all.push_back(large_case());
  for (const Case& c : all) {
    if (c.packed.tokens < 20) continue;
    const Inputs in(random, c, Dtype::fp64);
    const Gradients gradients = run(c, Dtype::fp64, in).gradients;
    const Inputs direction(random, c, Dtype::fp64);
    const auto loss = [&](double step) {
      Inputs moved = in;
      for (Values Inputs::*input : {&Inputs::q, &Inputs::k, &Inputs::v})
        for (std::size_t i = 0; i < (in.*input).size(); ++i)
          (moved.*input)[i] += step * (direction.*input)[i];
      return dot(plain_forward(c, moved).o, in.d_o);
    };
    constexpr double kStep = 1e-5;
    const double expected = (loss(kStep) - loss(-kStep)) / (2 * kStep);
    const double actual = dot(gradients.dq, direction.q) + dot(gradients.dk, direction.k) +
                          dot(gradients.dv, direction.v);
    const double size =
        std::sqrt(dot(gradients.dq, gradients.dq) + dot(gradients.dk, gradients.dk) +
                  dot(gradients.dv, gradients.dv));
    EXPECT_NEAR(actual, expected, 1e-7 * size) << "tokens " << c.packed.tokens;
  }
}

TEST(attention, gradients_in_storage_types) {
  Random random;
  std::vector<Case> all = cases();
  all.push_back(large_case());
  for (const Case& c : all)
    for (const Dtype storage : {Dtype::fp32, Dtype::bf16}) {
      const Inputs in(random, c, storage);
      const Gradients expected = run(c, Dtype::fp64, in).gradients;
      const Gradients actual = run(c, storage, in).gradients;
      // delta is made from the rounded output: its error enters dq and dk beside their rounding.
      const double bound = 4 * tolerance(storage, terms(c), 8);
      EXPECT_LT(relative_error(actual.dv, expected.dv), bound);
      if (c.packed.tokens == 1) continue;  // dq and dk are 0 but for rounding
      EXPECT_LT(relative_error(actual.dq, expected.dq), bound);
      EXPECT_LT(relative_error(actual.dk, expected.dk), bound);
    }
}

// Large scores of one sign: exp would overflow without the running maximum.
TEST(attention, large_scores_are_finite) {
  Random random;
  const Case c{{2, 1, 4, true, 40.0}, Packed({90, 60})};
  const Inputs in(random, c, Dtype::fp32);
  const Results results = run(c, Dtype::fp32, in);
  for (const Values* values : {&results.output.o, &results.output.lse, &results.gradients.dq})
    for (const double value : *values) ASSERT_TRUE(std::isfinite(value));
}

// What ranks compute that share the rows of a sequence: outputs and dq are those of all queries, dk
// and dv sum to theirs.
TEST(attention, parts_of_the_queries_make_the_whole) {
  Random random;
  std::vector<Case> all = cases();
  all.push_back(large_case());
  // Documents that end with a part, and those of one token on either side of its end.
  all.push_back({{3, 1, 5, true, 0.4}, Packed({7, 7, 7})});
  all.push_back({{3, 3, 7, true, 0.4}, Packed({6, 1, 1, 13, 1, 2})});
  for (const Case& c : all)
    for (const int parts : {2, 3, 8}) {
      const std::int64_t n = c.packed.tokens, width = c.q_width();
      if (n < parts) continue;
      const Inputs in(random, c, Dtype::fp64);
      const Results whole = run(c, Dtype::fp64, in);
      EXPECT_LT(relative_error(whole.output.o, plain_forward(c, in).o), 1e-13);
      Values dk(in.k.size(), 0), dv(in.v.size(), 0);
      for (int part = 0; part < parts; ++part) {
        const std::int64_t first = part * n / parts, m = (part + 1) * n / parts - first;
        const Results own = run_part(c, Dtype::fp64, in, first, m);
        EXPECT_LT(relative_error(own.output.o, rows_of(whole.output.o, first, m, width)), 1e-13);
        EXPECT_LT(rms_difference(own.output.lse, lse_of(c, whole.output.lse, first, m)), 1e-13);
        EXPECT_LT(rms_difference(own.gradients.dq, rows_of(whole.gradients.dq, first, m, width)),
                  1e-13);
        for (std::size_t i = 0; i < dk.size(); ++i) dk[i] += own.gradients.dk[i];
        for (std::size_t i = 0; i < dv.size(); ++i) dv[i] += own.gradients.dv[i];
      }
      EXPECT_LT(rms_difference(dk, whole.gradients.dk), 1e-13) << "tokens " << n;
      EXPECT_LT(relative_error(dv, whole.gradients.dv), 1e-13) << "tokens " << n;
    }
}

// Queries that begin among the tokens and end behind the last one. Values do not matter.
TEST(attention, queries_beyond_the_tokens_are_refused) {
  const Packed packed({2, 3});
  const std::int64_t n = packed.tokens, m = 3;
  const Array of_queries(Dtype::fp64, {m, 2}, Values(6, 1)), of_keys(Dtype::fp64, {n, 2});
  const Array lse(Dtype::fp64, {1, m}), starts = packed.cu_seqlens(), seq_idx = packed.seq_idx();
  const HeadsOf<View> q = heads(of_queries, 2), k = heads(of_keys, 2);
  AttentionShape shape{.heads = 1, .kv_heads = 1, .head_dim = 2, .scale = 1};
  const AttentionPair rooms(shape, packed, m, Dtype::fp64);
  const Array order = rooms.order(), room = rooms.room();
  const AttentionTensors tensors{q, k, k, q, lse, starts, seq_idx, q, q, k, k, order, room};
  const auto forward = [&](Queue& queue) {
    AttentionPair(shape, packed, m, Dtype::fp64).run_forward(queue, tensors);
  };
  const auto backward = [&](Queue& queue) {
    AttentionPair(shape, packed, m, Dtype::fp64).run_backward(queue, tensors);
  };
  for (const std::int64_t first : {-1, 0, 2, 3, 4, 5}) {
    shape.first_query = first;
    const bool within = 0 <= first && first + m <= n;
    EXPECT_EQ(refused([&] { on_queue(forward); }), !within) << "from " << first;
    EXPECT_EQ(refused([&] { on_queue(backward); }), !within) << "from " << first;
  }
}

// What is rounded at once, or after other ranks' shares are added, is the same number.
TEST(attention, key_gradients_may_stay_unrounded) {
  Random random;
  for (const Case& c : cases())
    for (const Dtype storage : kFloatingTypes) {
      const std::int64_t n = c.packed.tokens, first = n / 3, m = n - first;
      const Inputs in(random, c, storage);
      const Results narrow = run_part(c, storage, in, first, m);
      const Results wide = run_part(c, storage, in, first, m, true);
      EXPECT_EQ(rounded(wide.gradients.dk, storage), narrow.gradients.dk);
      EXPECT_EQ(rounded(wide.gradients.dv, storage), narrow.gradients.dv);
      EXPECT_EQ(wide.gradients.dq, narrow.gradients.dq);
      // A query that sees one key gives it all of its weight: nothing is rounded.
      if (storage == Dtype::bf16 && n > 20) {
        EXPECT_NE(wide.gradients.dv, narrow.gradients.dv);
      }
    }
}

// Rows are summed in the order of the whole call, so what a rank adds to a loss is bit for bit that
// of one rank.
TEST(attention, aligned_parts_have_the_bits_of_the_whole) {
  Random random;
  const Case c = {{4, 2, 32, true, 0.1767}, Packed({7, 250, 3, 107, 1}, 16)};
  for (const Dtype storage : kFloatingTypes) {
    const Inputs in(random, c, storage);
    const Results whole = run(c, storage, in);
    for (const std::int64_t first : {0, 128, 256}) {
      const std::int64_t m = 128;
      const Results own = run_part(c, storage, in, first, m);
      EXPECT_EQ(own.output.o, rows_of(whole.output.o, first, m, c.q_width()));
      EXPECT_EQ(own.output.lse, lse_of(c, whole.output.lse, first, m));
      EXPECT_EQ(own.gradients.dq, rows_of(whole.gradients.dq, first, m, c.q_width()));
      EXPECT_EQ(run_part(c, storage, in, first, m).gradients.dk, own.gradients.dk);
    }
  }
}

TEST(attention, two_runs_give_the_same_bits) {
  Random random;
  const Case c = large_case();
  const Inputs in(random, c, Dtype::fp32);
  const Results first = run(c, Dtype::fp32, in), second = run(c, Dtype::fp32, in);
  EXPECT_EQ(first.output.o, second.output.o);
  EXPECT_EQ(first.gradients.dq, second.gradients.dq);
  EXPECT_EQ(first.gradients.dk, second.gradients.dk);
  EXPECT_EQ(first.gradients.dv, second.gradients.dv);
}

// The GPU's plan is host code: what a step pays for it is known without one.
TEST(attention, room_for_score_gradients) {
  AttentionLayout layout;
  layout.heads = 32;
  layout.kv_heads = 8;
  layout.head_dim = 128;
  layout.query_gradient = QueryGradient::stored;
  const auto heads_at_once = [&](std::int64_t documents, std::int64_t length) {
    layout.tokens = documents * length;
    layout.documents = static_cast<int>(documents);
    layout.pairs = documents * length * (length + 1) / 2;
    const attention::Room room = attention::make_room(layout, true);
    EXPECT_LT(room.end - room.stored, static_cast<std::size_t>(kStoredGradientBytes));
    EXPECT_LT(room.stored, std::size_t{42} << 20);
    EXPECT_EQ(room.end, attention_backward_cuda_workspace_bytes(layout));
    return room.stored_per_head > 0 ? room.kv_heads_at_once : 0;
  };
  EXPECT_EQ(heads_at_once(8, 1024), 8);  // all of them
  EXPECT_EQ(heads_at_once(4, 4096), 4);  // within the wanted room
  EXPECT_EQ(heads_at_once(2, 8192), 2);
  EXPECT_EQ(heads_at_once(1, 16384), 2);  // beyond it, for tiles enough
  EXPECT_EQ(heads_at_once(1, 32768), 0);  // computed again
  layout.stored_limit_bytes = 0;
  EXPECT_EQ(heads_at_once(4, 4096), 0);
}

// dq made inside needs its sums in fp32 and a counter for each block of them, whatever the limit.
TEST(attention, room_for_sums) {
  AttentionLayout layout;
  layout.tokens = 2 * 8192;
  layout.documents = 2;
  layout.uniform_length = 8192;
  layout.heads = 32;
  layout.kv_heads = 8;
  layout.query_gradient = QueryGradient::inside;
  for (const int head_dim : {64, 128}) {
    layout.head_dim = head_dim;
    const attention::Room room = attention::make_room(layout, true);
    EXPECT_TRUE(room.inside);
    EXPECT_EQ(room.stored_per_head, 0);
    EXPECT_EQ(room.kv_heads_at_once, 8);
    EXPECT_EQ(room.end - room.sums, std::size_t{4} * 2 * 8192 * 32 * head_dim);
    EXPECT_EQ(room.counters, 3 * 8 + 2 * 8192 / 64 * 32 * (head_dim / 64));
    EXPECT_LE(room.turns + sizeof(int) * 2 * 8192 / 64 * 32 * (head_dim / 64), room.starts);
    EXPECT_EQ(room.end, attention_backward_cuda_workspace_bytes(layout));
  }
  for (const int head_dim : {96, 256}) {  // no path on tensor cores; one way
    layout.head_dim = head_dim;
    EXPECT_FALSE(attention::make_room(layout, true).inside);
  }
}

// Where documents are long dq is made inside, if nothing else is asked for; from shorter ones on
// for heads of 64.
TEST(attention, long_documents_have_dq_made_inside) {
  const auto inside = [](int head_dim, std::int64_t tokens, std::int64_t length) {
    AttentionLayout layout;
    layout.tokens = tokens;
    layout.documents = static_cast<int>(tokens / length);
    layout.uniform_length = length;
    layout.heads = layout.kv_heads = 32;
    layout.head_dim = head_dim;
    const bool equal = attention::make_room(layout, true).inside;
    layout.uniform_length = 0;  // packed, as many of them
    layout.pairs = layout.documents * length * (length + 1) / 2;
    EXPECT_EQ(attention::make_room(layout, true).inside, equal);
    layout.queries = tokens / 2;  // a part has the bits of the whole
    EXPECT_EQ(attention::make_room(layout, true).inside, equal);
    layout.queries = 0;
    layout.documents *= 2;  // or twice as many, if they are shorter
    EXPECT_EQ(attention::make_room(layout, true).inside, equal && head_dim == 64);
    return equal;
  };
  EXPECT_TRUE(inside(64, 16384, 8192));
  EXPECT_TRUE(inside(64, 16384, 4096));
  EXPECT_FALSE(inside(64, 16384, 1024));
  EXPECT_TRUE(inside(128, 16384, 8192));
  EXPECT_FALSE(inside(128, 16384, 4096));
  // Sums that would take more room than score gradients may, of 32 heads.
  EXPECT_FALSE(inside(64, 65 * 8192, 8192));
  EXPECT_FALSE(inside(128, 33 * 8192, 8192));
}

// Tiles of long documents may be taken in pieces, for which a plan has room.
TEST(attention, room_for_tiles_in_pieces) {
  AttentionLayout layout;
  layout.tokens = 8192;
  layout.documents = 20;
  layout.heads = 16;
  layout.kv_heads = 4;
  layout.head_dim = 128;
  const auto tiles = [&] {
    const attention::Room room = attention::make_room(layout, true);
    EXPECT_EQ(room.end, attention_backward_cuda_workspace_bytes(layout));
    if (!room.inside) {
      const auto group = static_cast<std::size_t>(layout.heads / layout.kv_heads);
      const std::size_t keys = layout.head_dim == 256 ? 64 : 128;
      EXPECT_EQ((room.stored - room.piece_sums) / (group * 2 * keys * sizeof(float)),
                static_cast<std::size_t>(room.tiles_in_pieces * layout.head_dim));
      EXPECT_EQ(room.counters, 3 * layout.kv_heads + 8 * room.tiles_in_pieces);
      EXPECT_LE(room.turns + static_cast<std::size_t>(room.tiles_in_pieces) * 8 * sizeof(int),
                room.starts);
    }
    return room.tiles_in_pieces;
  };
  EXPECT_EQ(tiles(), 65);
  layout.tokens = 1000;
  layout.documents = 1;
  EXPECT_EQ(tiles(), 4 * 7);
  layout.tokens = 2 * 128;  // as long as pieces have to gain
  EXPECT_EQ(tiles(), 0);
  layout.tokens = 1000;
  layout.kv_heads = 16;  // a tile has one head
  EXPECT_EQ(tiles(), 0);
  layout.kv_heads = 4;
  layout.queries = 500;
  EXPECT_EQ(tiles(), 0);
  layout.queries = layout.tokens;
  EXPECT_EQ(tiles(), 4 * 7);
  layout.query_gradient = QueryGradient::inside;
  EXPECT_EQ(tiles(), 0);
  layout.query_gradient = QueryGradient::stored;
  layout.uniform_length = 1000;
  EXPECT_EQ(tiles(), 0);
  layout.uniform_length = 0;
  layout.head_dim = 256;  // halves of tiles
  EXPECT_EQ(tiles(), 2 * 4 * 7);
  layout.causal = false;
  EXPECT_EQ(tiles(), 0);
}

// No lengths have more tiles in pieces than a plan has room for.
TEST(attention, tiles_in_pieces_are_within_their_room) {
  Random random;
  int with_pieces = 0;
  for (int draw = 0; draw < 20000; ++draw) {
    AttentionLayout layout;
    layout.kv_heads = static_cast<int>(random.integer(1, 8));
    const auto group = static_cast<int>(random.integer(2, 64));
    layout.heads = layout.kv_heads * group;
    layout.head_dim = draw % 2 == 0 ? 128 : 256;
    layout.query_gradient = QueryGradient::stored;
    std::vector<std::int64_t> tiles(static_cast<std::size_t>(random.integer(1, 6)));
    const std::int64_t most = std::int64_t{1} << random.integer(1, 8);
    for (std::int64_t& its : tiles) its = random.integer(0, most);
    std::int64_t work = 0, longest = 0, count = 0;
    for (const std::int64_t its : tiles) {
      layout.tokens += its > 0 ? its * 128 - 127 : 0;  // as few as can be
      longest = std::max(longest, its);
      work += its * (its + 1) / 2;
    }
    if (work == 0) continue;
    layout.documents = static_cast<int>(tiles.size());
    const int heads = layout.kv_heads * attention::key_parts(layout.head_dim);
    const std::int64_t least = attention::least_in_pieces(work, longest, heads, group);
    for (const std::int64_t its : tiles) count += std::max<std::int64_t>(0, its - least + 1);
    count *= heads;
    ASSERT_LE(count, attention::make_room(layout, true).tiles_in_pieces);
    with_pieces += count > 0 ? 1 : 0;
  }
  EXPECT_GT(with_pieces, 1000);
}

// No length needs more blocks than the bound says that the room is made from.
TEST(attention, stored_blocks_are_within_their_bound) {
  for (std::int64_t length = 1; length < 3000; ++length) {
    const double l = static_cast<double>(length);
    EXPECT_LE(static_cast<double>(attention::stored_blocks(true, length)),
              l * (l + 254) / 16384 + 1);
    EXPECT_LE(static_cast<double>(attention::stored_blocks(false, length)),
              l * (l + 190) / 8192 + 1);
  }
}

TEST(attention, cost_counts_unmasked_pairs_and_rows_that_move) {
  const std::int64_t lengths[] = {3, 0, 2};
  EXPECT_EQ(attention_pairs(lengths, true), 6 + 3);
  EXPECT_EQ(attention_pairs(lengths, false), 9 + 4);
  const AttentionShape shape{8, 2, 64, true, 0.125};
  const execution::Cost forward = AttentionForward{shape, 5, 5, 1, Dtype::bf16, 9}.cost();
  const execution::Cost backward = AttentionBackward{shape, 5, 5, 1, Dtype::bf16, false, 9}.cost();
  EXPECT_EQ(forward.flops, 4.0 * 8 * 9 * 64);
  EXPECT_EQ(backward.flops, 10.0 * 8 * 9 * 64);
  EXPECT_EQ(forward.bytes, 5 * (2 * (8 + 8 + 2 + 2) * 64 + 4 * 8));
  EXPECT_EQ(backward.bytes, 5 * (2 * (4 * 8 + 4 * 2) * 64 + 2 * 4 * 8));
}

// Heads of 128 leave idle what masked keys take; narrower heads and short documents leave more.
TEST(attention, narrow_heads_and_short_documents_leave_products_idle) {
  const auto idle = []<class Op>(Op op, std::int64_t head_dim, std::int64_t length) {
    op.shape = {16, 16, head_dim, true, 0.125};
    op.tokens = op.queries = length;
    op.documents = 1;
    op.storage = Dtype::bf16;
    op.scores = length * (length + 1) / 2;
    return op.cost().idle_flops / op.cost().flops;
  };
  EXPECT_NEAR(idle(AttentionForward{}, 128, 8192), 32 / 4096.5, 1e-12);
  EXPECT_NEAR(idle(AttentionBackward{}, 128, 8192), 128 / 4096.5, 1e-12);
  const auto check = [&](auto op) {
    EXPECT_GT(idle(op, 64, 8192), 0.25);
    EXPECT_GT(idle(op, 64, 1024), 1.2 * idle(op, 64, 8192));
    EXPECT_GT(idle(op, 128, 1024), idle(op, 128, 8192));
  };
  check(AttentionForward{});
  check(AttentionBackward{});
}

}  // namespace
}  // namespace stowage::kernels::test
