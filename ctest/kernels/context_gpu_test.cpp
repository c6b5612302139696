// What ranks that share a sequence compute on a GPU: a part of the queries, what a segment of a
// scan leaves and what enters it, rows of the convolution, positions. Against the whole on the same
// GPU, bit by bit where that holds, and against the host in fp64 on inputs as rounded to storage.
#include "ctest/kernels/attention_run.hpp"
#include "ctest/kernels/operator_check.hpp"
#include "ctest/kernels/scan_case.hpp"
#include "kernels/conv1d/conv1d.hpp"
#include "kernels/conv1d/halo.hpp"
#include "kernels/elementwise/elementwise.hpp"
#include "kernels/rope/rope.hpp"
#include "kernels/ssd/segment.hpp"

namespace stowage::kernels::test {
namespace {

Values rows_of(const Values& all, std::int64_t first, std::int64_t rows, std::int64_t width) {
  return {all.begin() + first * width, all.begin() + (first + rows) * width};
}

void add(Values& to, const Values& part) {
  to.resize(part.size(), 0);
  for (std::size_t i = 0; i < part.size(); ++i) to[i] += part[i];
}

struct AttentionInputs {
  AttentionInputs(Random& random, const AttentionShape& s, std::int64_t n, Dtype storage)
      : q(rounded(random.normal(n * s.heads * s.head_dim), storage)),
        k(rounded(random.normal(n * s.kv_heads * s.head_dim), storage)),
        v(rounded(random.normal(n * s.kv_heads * s.head_dim), storage)),
        d_o(rounded(random.normal(n * s.heads * s.head_dim), storage)) {}
  Values q, k, v, d_o;
};

/// Queries [first, first + m) of the tokens, with what they give. `wide`: dk and dv as they are
/// summed.
class AttentionPart {
 public:
  AttentionPart(AttentionShape shape, const Packed& packed, const AttentionInputs& in,
                Dtype storage, std::int64_t first, std::int64_t m, bool wide = false)
      : pair_(from(shape, first), packed, m, storage, wide),
        width_(shape.heads * shape.head_dim),
        q_(storage, {m, width_}, rows_of(in.q, first, m, width_)),
        d_o_(storage, {m, width_}, rows_of(in.d_o, first, m, width_)),
        k_(storage, {packed.tokens, shape.kv_heads * shape.head_dim}, in.k),
        v_(storage, {packed.tokens, shape.kv_heads * shape.head_dim}, in.v),
        starts_(packed.cu_seqlens()),
        documents_(packed.seq_idx()),
        order_(pair_.order()),
        room_(pair_.room()),
        o(storage, {m, width_}),
        lse(execution::accumulation(storage), {shape.heads, m}),
        dq(storage, {m, width_}),
        dk(wide ? execution::accumulation(storage) : storage,
           {packed.tokens, shape.kv_heads * shape.head_dim}),
        dv(dk.view().dtype(), {packed.tokens, shape.kv_heads * shape.head_dim}) {}

  template <class At>
  void enqueue(Queue& queue, At&& at) const {
    const auto whole = [&](const Array& all) {
      return heads(at(all), pair_.forward.shape.head_dim);
    };
    pair_.run(queue, {.q = whole(q_),
                      .k = whole(k_),
                      .v = whole(v_),
                      .o = whole(o),
                      .lse = at(lse),
                      .cu_seqlens = at(starts_),
                      .seq_idx = at(documents_),
                      .d_o = whole(d_o_),
                      .dq = whole(dq),
                      .dk = whole(dk),
                      .dv = whole(dv),
                      .order = at(order_),
                      .room = at(room_)});
  }
  /// o, lse, dq, dk, dv.
  std::vector<Array> on_device() const {
    return on_gpu([&](Queue& queue, auto& at) { enqueue(queue, at); }, {o, lse, dq, dk, dv});
  }
  void on_host() const {
    on_queue(
        [&](Queue& queue) { enqueue(queue, [](const Array& array) { return array.view(); }); });
  }

 private:
  static AttentionShape from(AttentionShape shape, std::int64_t first) {
    shape.first_query = first;
    return shape;
  }

  AttentionPair pair_;
  std::int64_t width_;
  Array q_, d_o_, k_, v_, starts_, documents_, order_, room_;

 public:
  Array o, lse, dq, dk, dv;
};

void check_attention(Random& random, const AttentionShape& shape, const Packed& packed,
                     Dtype storage, std::int64_t parts) {
  SCOPED_TRACE(testing::Message() << "head_dim " << shape.head_dim << " causal " << shape.causal
                                  << " tokens " << packed.tokens << " in " << parts << " parts, "
                                  << name(storage));
  const std::int64_t n = packed.tokens, width = shape.heads * shape.head_dim;
  const AttentionInputs in(random, shape, n, storage);
  const AttentionPart reference(shape, packed, in, Dtype::fp64, 0, n);
  reference.on_host();
  const std::vector<Array> whole = AttentionPart(shape, packed, in, storage, 0, n).on_device();
  // As in attention_gpu_test.cpp; each part rounds its share of dk and dv once more.
  const double bound = storage == Dtype::bf16 ? 2 * 2 * 0x1p-8 / 1.73 : 256 * 0x1p-24;
  Values dk, dv;
  for (std::int64_t part = 0; part < parts; ++part) {
    const std::int64_t first = part * n / parts, m = (part + 1) * n / parts - first;
    const std::vector<Array> own = AttentionPart(shape, packed, in, storage, first, m).on_device();
    const std::vector<Array> wide =
        AttentionPart(shape, packed, in, storage, first, m, true).on_device();
    for (const std::size_t g : {2, 3, 4})
      EXPECT_EQ(rounded(wide[g].values(), storage), own[g].values()) << "gradient " << g;
    EXPECT_EQ(own[0].values(), rows_of(whole[0].values(), first, m, width));
    const Values lse = own[1].values(), all = whole[1].values();
    for (std::int64_t h = 0; h < shape.heads; ++h)
      for (std::int64_t t = 0; t < m; ++t)
        ASSERT_EQ(lse[at(h * m + t)], all[at(h * n + first + t)]) << "head " << h << " row " << t;
    if (shape.query_gradient == QueryGradient::inside) {  // shares are added as for the whole
      EXPECT_EQ(own[2].values(), rows_of(whole[2].values(), first, m, width));
    }
    EXPECT_LT(rms_difference(own[2].values(), rows_of(reference.dq.values(), first, m, width)),
              bound);
    add(dk, wide[3].values());
    add(dv, wide[4].values());
  }
  EXPECT_LT(relative_error(dk, reference.dk.values()), bound);
  EXPECT_LT(relative_error(dv, reference.dv.values()), bound);
}

AttentionShape shape_of(std::int64_t heads, std::int64_t kv_heads, std::int64_t dim, bool causal) {
  return {heads, kv_heads, dim, causal, 1 / std::sqrt(static_cast<double>(dim))};
}

TEST(context_gpu, parts_of_the_queries_make_the_whole) {
  STOWAGE_NEED_GPU();
  Random random;
  const std::vector<Packed> packings = {Packed({1, 5, 0, 127, 128, 129, 300, 64, 65, 0, 0}),
                                        Packed({640}, 1), Packed({256, 256, 256}, 77)};
  for (const Packed& packed : packings)
    for (const bool causal : {true, false})
      for (const std::int64_t parts : {2, 3, 8}) {
        for (const std::int64_t dim : {64, 128})
          for (const QueryGradient way : {QueryGradient::stored, QueryGradient::inside}) {
            AttentionShape shape = shape_of(3, 1, dim, causal);
            shape.query_gradient = way;
            check_attention(random, shape, packed, Dtype::bf16, parts);
          }
        check_attention(random, shape_of(4, 2, 48, causal), packed, Dtype::bf16, parts);
        check_attention(random, shape_of(4, 2, 16, causal), packed, Dtype::fp32, parts);
      }
}

TEST(context_gpu, sums_of_one_long_document) {
  // Tiles of keys in pieces, where one part is all; dk and dv in bf16 are those in fp32, rounded.
  STOWAGE_NEED_GPU();
  Random random;
  for (const std::int64_t dim : {64, 128})
    for (const std::int64_t parts : {1, 2}) {
      AttentionShape shape = shape_of(4, 1, dim, true);
      shape.query_gradient = QueryGradient::stored;
      check_attention(random, shape, Packed({70, 1500, 0, 300}, 9), Dtype::bf16, parts);
    }
}

/// What nothing enters is zero to the bit.
double error_of_segment(const Values& actual, const Values& expected) {
  if (dot(expected, expected) > 0) return relative_error(actual, expected);
  return actual == expected ? 0 : 1;
}

// All sums are fp32; the state of a head forgets within some hundred tokens, the terms that count.
TEST(context_gpu, segments_of_a_scan) {
  STOWAGE_NEED_GPU();
  Random random;
  const std::vector<ScanCase> cases = {
      {{.heads = 4, .head_dim = 64, .groups = 2, .state = 128, .chunk = 64}, Packed({1024})},
      {{.heads = 3, .head_dim = 20, .groups = 1, .state = 7, .chunk = 64}, Packed({100, 1, 29}, 2)},
      {{.heads = 2, .head_dim = 64, .groups = 1, .state = 64, .chunk = 64}, Packed({31, 32, 33})},
      {{.heads = 1, .head_dim = 1, .groups = 1, .state = 1, .chunk = 64}, Packed({4})}};
  for (const ScanCase& c : cases)
    for (const Dtype storage : {Dtype::fp32, Dtype::bf16})
      for (const std::int64_t segments : {1, 4}) {
        SCOPED_TRACE(testing::Message() << c.packed.tokens << " tokens, " << name(storage));
        const auto check = [&](const auto& op, const auto& set_up) {
          const auto o = make_arrays(op, random);
          set_up(o);
          check_on_gpu(
              op, o, [](std::string_view) { return 256 * 0x1p-24; }, 2, error_of_segment);
        };
        const auto inputs = [&](const auto& o) {
          set_inputs(o.inputs, c, ScanInputs(random, c, storage));
        };
        check(c.op<SsdSegmentState>(storage), inputs);
        check(c.op<SsdSegmentAdjoint>(storage), inputs);
        const auto all = [&](const auto& o) {
          set(o.all, random.uniform(segments * ssd_segment_elements(c.shape), 0, 1));
          set(o.seq_idx, {c.packed.document.begin(), c.packed.document.end()});
        };
        SsdEnterState state = c.op<SsdEnterState>(storage);
        state.segments = segments;
        state.segment = segments - 1;
        check(state, all);
        SsdEnterAdjoint adjoint = c.op<SsdEnterAdjoint>(storage);
        adjoint.segments = segments;
        check(adjoint, all);
      }
}

TEST(context_gpu, rows_of_the_convolution) {
  STOWAGE_NEED_GPU();
  Random random;
  const std::int64_t n = 40, channels = 24, cut = 17;
  for (const Dtype storage : {Dtype::fp32, Dtype::bf16})
    for (const std::vector<std::int64_t>& lengths :
         {std::vector<std::int64_t>{40}, {17, 23}, {16, 24}, {15, 1, 24}}) {
      const Packed packed(lengths);
      const Conv1dHaloRows take{.tokens = cut,
                                .channels = channels,
                                .sequence_tokens = n,
                                .border = cut,
                                .storage = storage};
      const Conv1dHaloAdd give{.tokens = cut,
                               .channels = channels,
                               .sequence_tokens = n,
                               .border = cut,
                               .storage = storage};
      Arrays<Conv1dHaloRows> t = make_arrays(take, random);
      Arrays<Conv1dHaloAdd> g = make_arrays(give, random);
      t.seq_idx = g.seq_idx = packed.seq_idx();
      expect_host_bits(take, t, 3);
      expect_host_bits(give, g, 3);
      ASSERT_EQ(packed.tokens, n);
    }
}

TEST(context_gpu, heads_of_each_rank) {
  STOWAGE_NEED_GPU();
  Random random;
  const std::int64_t rows = 77;
  for (const auto& [blocks, parts] : {std::pair{ColumnBlocks{{96, 24, 24}}, std::int64_t{3}},
                                      {{{96, 24, 24}, {1, 2, 2}}, 6},
                                      {{{18, 6, 6}, {1, 2, 2}}, 6}})
    for (const Dtype storage : {Dtype::fp64, Dtype::fp32, Dtype::bf16}) {
      const std::int64_t width = blocks.width(), share = blocks.part_width(parts);
      const Array x(storage, {rows, width}, rounded(random.normal(rows * width), storage));
      const Array split(storage, {parts, rows, share}), back(storage, {rows, width});
      const auto work = [&](Queue& queue, auto&& at) {
        enqueue(queue, SplitColumns{rows, parts, blocks, storage}, {.x = x, .parts = split}, at);
        enqueue(queue, JoinColumns{rows, parts, blocks, storage}, {.parts = split, .x = back}, at);
      };
      const std::vector<Array> actual = on_gpu(work, {split, back});
      on_queue([&](Queue& q) { work(q, [](const Array& array) { return array.view(); }); });
      EXPECT_EQ(actual[0].values(), split.values());
      EXPECT_EQ(actual[1].values(), back.values());
      if (blocks.copies[1] == 1) {
        EXPECT_EQ(actual[1].values(), x.values());
      }
    }
}

TEST(context_gpu, positions_and_columns_of_a_part) {
  STOWAGE_NEED_GPU();
  Random random;
  const Packed packed({33, 1, 70}, 2);
  const std::int64_t dim = 64, width = 8 * dim, first = 20, rows = 60, count = 4 * dim;
  const Values in = rounded(random.normal(packed.tokens * width), Dtype::bf16);
  const Array all(Dtype::bf16, {packed.tokens, width}, in);
  const Array part(Dtype::bf16, {rows, width}, rows_of(in, first, rows, width));
  const Array turned(Dtype::bf16, {packed.tokens, width}), own(Dtype::bf16, {rows, width});
  const Array packed_columns(Dtype::bf16, {rows, count});
  const Array starts = packed.cu_seqlens(), documents = packed.seq_idx();
  const Array own_documents =
      int32_array({packed.document.begin() + first, packed.document.begin() + first + rows});
  const auto rope = [&](std::int64_t tokens, std::int64_t first_token) {
    return Rope{.tokens = tokens,
                .heads = 4,
                .kv_heads = 2,
                .head_dim = dim,
                .rotary_dim = dim,
                .starts = starts.view().extent(0),
                .storage = Dtype::bf16,
                .frequencies = {1e4},
                .first_token = first_token};
  };
  const std::vector<Array> results = on_gpu(
      [&](Queue& q, auto& at) {
        enqueue(
            q, rope(packed.tokens, 0),
            {.in = all, .cu_seqlens = starts, .seq_idx = documents, .positions = {}, .out = turned},
            at);
        enqueue(q, rope(rows, first),
                {.in = part,
                 .cu_seqlens = starts,
                 .seq_idx = own_documents,
                 .positions = {},
                 .out = own},
                at);
        enqueue(q, PackColumns{rows, count, Dtype::bf16},
                {.columns = {part, width - count, count}, .packed = packed_columns}, at);
      },
      {turned, own, packed_columns});
  EXPECT_EQ(results[1].values(), rows_of(results[0].values(), first, rows, width));
  const Values columns = results[2].values();
  for (std::int64_t i = 0; i < rows; ++i)
    for (std::int64_t j = 0; j < count; ++j)
      ASSERT_EQ(columns[at(i * count + j)], in[at((first + i) * width + width - count + j)]);
}

}  // namespace
}  // namespace stowage::kernels::test
