#include <functional>

#include "ctest/kernels/attention_gpu_support.hpp"
#include "ctest/kernels/digest_rows.hpp"

// The same inputs give the same bits: over many runs, eagerly and replayed as a graph, whatever the
// order in which blocks drew their tiles.
namespace stowage::kernels::test {
namespace {

/// What the backward does with the score gradients of a case.
enum class Stored { all, some, none, any };

/// A case, by the launchers if `change` is set.
struct Kind {
  std::string name;
  AttentionCase c;
  Stored stored;
  std::function<void(AttentionLayout&)> change;

  void run(DeviceAttention& device, Queue& queue) const {
    if (change) return device.launch(queue, change);
    device.forward(queue);
    device.backward(queue);
  }

  /// Of the documents; rows after the last are one more.
  std::vector<std::int64_t> lengths() const {
    std::vector<std::int64_t> all;
    for (std::size_t i = 1; i < c.packed.starts.size(); ++i)
      all.push_back(c.packed.starts[i] - c.packed.starts[i - 1]);
    const std::int64_t rest = c.packed.tokens - c.packed.starts.back();
    if (rest > 0) all.push_back(rest);
    return all;
  }

  /// Tiles of keys that a launch of the backward takes in pieces.
  std::int64_t in_pieces() const {
    AttentionLayout layout = layout_of(c);
    if (change) change(layout);
    const attention::Room room = attention::make_room(layout, true);
    if (room.tiles_in_pieces == 0) return 0;
    const std::int64_t tiles =
        tiles_in_pieces(lengths(), room.kv_heads_at_once * attention::key_parts(layout.head_dim),
                        layout.heads / layout.kv_heads);
    EXPECT_LE(tiles, room.tiles_in_pieces);
    return tiles;
  }

  /// That the room of the backward is what the kind is named for.
  void expect_room() const {
    AttentionLayout layout = layout_of(c);
    if (change) change(layout);
    if (stored == Stored::any) return;
    std::int64_t needed = 0;
    for (const std::int64_t length : lengths()) {
      const std::int64_t blocks = attention::stored_blocks(c.shape.causal, length);
      needed = layout.uniform_length > 0 ? blocks : needed + blocks;
    }
    const std::int64_t room = attention::make_room(layout, true).stored_per_head;
    const Stored planned = room >= needed ? Stored::all : room > 0 ? Stored::some : Stored::none;
    EXPECT_EQ(planned, stored) << room << " blocks of " << needed;
  }
};

/// A shape whose dq is made from score gradients.
AttentionShape stored_shape(std::int64_t heads, std::int64_t head_dim, bool causal) {
  AttentionShape shape = attention_shape(heads, 2, head_dim, causal);
  shape.query_gradient = QueryGradient::stored;
  return shape;
}

AttentionCase large_case(std::int64_t head_dim, bool causal = true) {
  return {stored_shape(4, head_dim, causal), Packed({900, 1, 0, 333, 128, 1, 640, 257, 64}, 40)};
}

/// Room for the score gradients of one kv head of two.
void one_head_at_a_time(AttentionLayout& layout) {
  layout.stored_limit_bytes = std::int64_t{1} << 30;
  attention::Room room = attention::make_room(layout, true);
  ASSERT_EQ(room.kv_heads_at_once, 2);
  const std::int64_t documents = layout.uniform_length > 0 ? layout.documents : 1;
  layout.stored_limit_bytes = room.stored_per_head * documents * attention::kStoredBytes *
                              (layout.heads / layout.kv_heads) * 3 / 2;
  room = attention::make_room(layout, true);
  ASSERT_EQ(room.kv_heads_at_once, 1);
  ASSERT_GT(room.stored_per_head, 0);
}

std::vector<Kind> kinds(std::int64_t p) {
  std::vector<Kind> all;
  // Tiles enough for rounds of one head.
  constexpr std::int64_t kLength = 128;
  const std::int64_t documents = 260 / attention::key_parts(static_cast<int>(p));
  const Packed many(std::vector<std::int64_t>(documents, kLength));
  std::vector<std::int64_t> one_long(documents - 30, kLength);
  one_long.push_back(30 * kLength);
  for (const bool causal : {true, false}) {
    const std::string mask = causal ? ", causal" : ", full";
    all.push_back({"packed" + mask, large_case(p, causal), Stored::all, {}});
    all.push_back({"packed, some computed twice" + mask, large_case(p, causal), Stored::some, {}});
    all.back().c.shape.pairs = 1;
    const AttentionShape two = stored_shape(2, p, causal);
    all.push_back(
        {"short documents" + mask, {two, Packed({0, 1, 0, 0, 1, 1, 0, 2}, 1)}, Stored::any, {}});
    all.push_back({"one key" + mask, {two, Packed({1})}, Stored::any, {}});
    all.push_back({"nothing but a tail" + mask, {two, Packed({0, 0}, 130)}, Stored::any, {}});
    if (p != 64 && p != 128 && p != 256) continue;
    if (causal) {
      const AttentionCase long_document = {stored_shape(4, p, true),
                                           Packed({70, 2900, 300, 0, 129})};
      all.push_back({"in pieces", long_document, Stored::all, {}});
      all.push_back({"in pieces, computed twice", long_document, Stored::some, {}});
      all.back().c.shape.pairs = 1;
      all.push_back({"in pieces, some of all documents",
                     {stored_shape(8, p, true), Packed({1500, 130, 1430, 0, 900}, 40)},
                     Stored::all,
                     {}});
      all.push_back({"in pieces, rounds of a head",
                     {stored_shape(4, p, true), Packed(one_long)},
                     Stored::all,
                     [pairs = attention_pairs(one_long, true)](auto& layout) {
                       layout.pairs = pairs;
                       one_head_at_a_time(layout);
                     }});
    }
    const auto inside = [](AttentionCase c) {
      c.shape.query_gradient = QueryGradient::inside;
      return c;
    };
    const AttentionShape group = attention_shape(4, 2, p, causal);
    if (p != 256) {
      all.push_back({"inside, packed" + mask, inside(large_case(p, causal)), Stored::none, {}});
      all.push_back(
          {"inside, short" + mask, inside({two, Packed({0, 1, 0, 1, 2}, 1)}), Stored::none, {}});
      all.push_back({"inside, long" + mask, inside({group, Packed({5000, 70})}), Stored::none, {}});
      all.push_back({"inside, equal" + mask, inside({group, Packed({400, 400, 400})}), Stored::none,
                     [](auto& layout) { layout.uniform_length = 400; }});
    }
    all.push_back(
        {"equal, stored" + mask, {two, Packed({400, 400, 400})}, Stored::all, [](auto& layout) {
           layout.uniform_length = 400;
         }});
    all.push_back({"equal, computed twice" + mask,
                   {two, Packed({400, 400, 400})},
                   Stored::none,
                   [](auto& layout) {
                     layout.uniform_length = 400;
                     layout.stored_limit_bytes = 0;
                   }});
    all.push_back({"rounds of a head, packed" + mask, {two, many}, Stored::all, [=](auto& layout) {
                     layout.pairs = documents * kLength * (causal ? (kLength + 1) / 2 : kLength);
                     one_head_at_a_time(layout);
                   }});
    all.push_back({"rounds of a head, equal" + mask, {two, many}, Stored::all, [](auto& layout) {
                     layout.uniform_length = kLength;
                     one_head_at_a_time(layout);
                   }});
  }
  return all;
}

constexpr std::size_t kRoom = std::size_t{96} << 20;
constexpr int kRuns = 100, kReplays = 10;

/// Runs at once and `replays` launches of a graph leave the same bits.
template <class Run>
void expect_bits_of(const Run& run, execution::Graph& graph, DeviceAttention& device, Queue& queue,
                    int replays) {
  DigestRows digests(1 + replays);
  for (int i = 0; i <= replays; ++i) {
    device.poison(queue);
    i == 0 ? run(queue) : graph.launch(queue);
    digests.add(queue, i, device.outputs());
  }
  EXPECT_EQ(digests.different(), 0);
}

class attention_bits_gpu : public testing::TestWithParam<std::int64_t> {
 protected:
  void SetUp() override {
    STOWAGE_NEED_GPU();
    if (GetParam() != 40) {
      STOWAGE_NEED_WGMMA();
    }
  }
};

// Needs no GPU: the room is planned anywhere.
TEST(attention_bits, kinds_are_what_they_are_named_for) {
  for (const std::int64_t head_dim : {64, 128, 256})
    for (const Kind& kind : kinds(head_dim)) {
      SCOPED_TRACE(kind.name);
      kind.expect_room();
      if (kind.name.starts_with("in pieces")) {
        EXPECT_GT(kind.in_pieces(), 0);
      }
      if (kind.name.starts_with("inside") || kind.name.ends_with(", full")) {
        EXPECT_EQ(kind.in_pieces(), 0);
      }
    }
}

TEST_P(attention_bits_gpu, hundred_runs) {
  Random random;
  for (const Kind& kind : kinds(GetParam())) {
    SCOPED_TRACE(kind.name);
    const AttentionProblem problem(random, kind.c);
    DeviceAttention device(problem, kind.change ? kRoom : 0);
    Gpu gpu;
    DigestRows digests(kRuns);
    for (int run = 0; run < kRuns; ++run) {
      device.poison(*gpu.queue);
      kind.run(device, *gpu.queue);
      if (HasFatalFailure()) return;
      digests.add(*gpu.queue, run, device.outputs());
    }
    EXPECT_EQ(digests.different(), 0);
  }
}

TEST_P(attention_bits_gpu, replayed_graph) {
  Random random;
  for (const Kind& kind : kinds(GetParam())) {
    SCOPED_TRACE(kind.name);
    const AttentionProblem problem(random, kind.c);
    DeviceAttention device(problem, kind.change ? kRoom : 0);
    Gpu gpu;
    gpu.backend->begin_capture(*gpu.queue);
    kind.run(device, *gpu.queue);
    const auto graph = gpu.backend->end_capture(*gpu.queue);
    if (HasFatalFailure()) return;
    expect_bits_of([&](Queue& queue) { kind.run(device, queue); }, *graph, device, *gpu.queue,
                   kReplays);
  }
}

/// One graph, captured from a case, for other documents of its capacity.
void check_graph_of_a_capacity(const AttentionCase& c) {
  Random random;
  const AttentionProblem problem(random, c);
  DeviceAttention device(problem);
  Gpu gpu;
  const auto both = [&](Queue& queue) {
    device.forward(queue);
    device.backward(queue);
  };
  gpu.backend->begin_capture(*gpu.queue);
  both(*gpu.queue);
  const auto graph = gpu.backend->end_capture(*gpu.queue);
  // The graph serves other documents of the same capacity; a long one has tiles in pieces.
  for (const Packed& packed :
       {c.packed, Packed({0, 0, 2324, 0, 40, 0, 0, 0, 0}),
        Packed({5, 5, 5, 5, 5, 5, 5, 5, 5}, 2319), Packed({0, 0, 0, 0, 0, 0, 0, 0, 0}, 2364),
        Packed({1, 1, 1, 0, 2361, 0, 0, 0, 0})}) {
    device.set_documents(packed);
    expect_bits_of(both, *graph, device, *gpu.queue, 3);
  }
}

TEST_P(attention_bits_gpu, graph_of_a_capacity) {
  for (const QueryGradient way : ways_of(GetParam())) {
    AttentionCase c = large_case(GetParam());
    c.shape.query_gradient = way;
    check_graph_of_a_capacity(c);
  }
}

// All tensor-core head dimensions, and one of the path without.
INSTANTIATE_TEST_SUITE_P(head_dim, attention_bits_gpu, testing::Values(64, 128, 256, 40));

}  // namespace
}  // namespace stowage::kernels::test
