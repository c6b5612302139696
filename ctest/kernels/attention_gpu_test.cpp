#include "ctest/kernels/attention_gpu_support.hpp"
#include "ctest/kernels/attention_strides.hpp"

// The device against the host's reference in fp64, on inputs as rounded to storage.
namespace stowage::kernels::test {
namespace {

/// bf16 rounds to 2^-9 of a value; o is rounded twice (P and o), a gradient three times (P or dS, o
/// within delta, the result), each with a random sign: sqrt(2), sqrt(3) of 2^-8 / sqrt(3), times 2.
/// In fp32 sums of all tokens and heads round, and exponentials of scores that do.
double output_tolerance(Dtype storage) {
  return storage == Dtype::bf16 ? 2 * 1.42 * 0x1p-8 / 1.73 : 64 * 0x1p-24;
}
double gradient_tolerance(Dtype storage) {
  return storage == Dtype::bf16 ? 2 * 1.74 * 0x1p-8 / 1.73 : 256 * 0x1p-24;
}
constexpr double kLseTolerance = 64 * 0x1p-24;  // fp32, absolute: scores are of order 1 to 10

void compare(const AttentionCase& c, const AttentionResults& actual,
             const AttentionResults& expected) {
  SCOPED_TRACE("head_dim " + std::to_string(c.shape.head_dim) + ", heads " +
               std::to_string(c.shape.heads) + "/" + std::to_string(c.shape.kv_heads) +
               ", causal " + std::to_string(c.shape.causal) + ", tokens " +
               std::to_string(c.packed.tokens) + ", " + std::string(execution::name(c.storage)) +
               (c.shape.query_gradient == QueryGradient::inside ? ", dq inside" : ""));
  EXPECT_LT(relative_error(actual.o, expected.o), output_tolerance(c.storage));
  EXPECT_LT(rms_difference(actual.lse, expected.lse), kLseTolerance);
  EXPECT_LT(relative_error(actual.gradient, expected.gradient), gradient_tolerance(c.storage));
}

/// Through the queue form, every way.
void check(Random& random, const AttentionCase& c) {
  AttentionProblem problem(random, c);
  const AttentionResults expected = problem.on_host();
  for (const QueryGradient way : ways_of(c.shape.head_dim, c.storage)) {
    problem.set_way(way);
    DeviceAttention device(problem);
    Gpu gpu;
    device.poison(*gpu.queue);
    device.forward(*gpu.queue);
    device.backward(*gpu.queue);
    gpu.queue->synchronize();
    compare(problem.at(), device.results(), expected);
  }
}

/// Through the launchers.
template <class Change>
void check_layout(Random& random, const AttentionCase& c, Change&& change) {
  const AttentionProblem problem(random, c);
  DeviceAttention device(problem, std::size_t{64} << 20);
  Gpu gpu;
  device.launch(*gpu.queue, std::forward<Change>(change));
  gpu.queue->synchronize();
  compare(c, device.results(), problem.on_host());
}

const std::vector<std::int64_t> kRagged = {1, 5, 0, 127, 128, 129, 300, 64, 65, 0, 0};

TEST(attention_gpu, packed_documents) {
  STOWAGE_NEED_GPU();
  Random random;
  for (const std::int64_t p : {64, 128, 256})
    for (const bool causal : {true, false}) {
      check(random, {attention_shape(3, 1, p, causal), Packed(kRagged)});
      check(random, {attention_shape(2, 2, p, causal), Packed(kRagged, 77)});
      check(random, {attention_shape(8, 4, p, causal), Packed({640}, 1)});
    }
}

TEST(attention_gpu, one_long_document) {
  // Tiles of keys in pieces: where dq is made from stored gradients, unless a group has one head.
  STOWAGE_NEED_GPU();
  Random random;
  for (const std::int64_t p : {64, 128, 256}) {
    check(random, {attention_shape(4, 1, p), Packed({30, 1500, 200, 0, 129, 600}, 7)});
    check(random, {attention_shape(6, 2, p), Packed({1290})});
    check(random, {attention_shape(8, 1, p), Packed({5}, 1100)});
    check(random, {attention_shape(2, 2, p), Packed({1100, 5, 260})});
  }
}

TEST(attention_gpu, heads_of_qwen3_next) {
  // 16 query heads share two kv heads; four share one on each of the ranks that split them.
  STOWAGE_NEED_WGMMA();
  Random random;
  for (const bool causal : {true, false}) {
    check(random, {attention_shape(16, 2, 256, causal), Packed({513, 0, 190, 77}, 20)});
    check(random, {attention_shape(4, 1, 256, causal), Packed({30, 700, 64, 65}, 7)});
  }
  check(random, {attention_shape(4, 1, 256), Packed({2100})});
}

TEST(attention_gpu, short_batches) {
  STOWAGE_NEED_GPU();
  Random random;
  for (const std::int64_t p : {64, 128, 256, 48})
    for (const bool causal : {true, false}) {
      check(random, {attention_shape(2, 1, p, causal), Packed({1})});
      check(random, {attention_shape(2, 1, p, causal), Packed({0, 1, 0}, 1)});
      check(random, {attention_shape(2, 1, p, causal), Packed({0}, 3)});
      check(random, {attention_shape(2, 1, p, causal), Packed({1, 1, 1, 1, 1, 1, 1})});
    }
}

TEST(attention_gpu, many_documents) {
  STOWAGE_NEED_GPU();
  Random random;
  std::vector<std::int64_t> lengths;
  for (int i = 0; i < 700; ++i) lengths.push_back(random.integer(0, 6));
  for (const std::int64_t p : {64, 128, 256})
    check(random, {attention_shape(2, 1, p), Packed(lengths, 2)});
}

TEST(attention_gpu, room_for_some_documents) {
  // With fewer pairs expected than there are, the longest documents are computed twice.
  STOWAGE_NEED_WGMMA();
  Random random;
  for (const std::int64_t p : {64, 128, 256})
    for (const bool causal : {true, false}) {
      AttentionShape shape = attention_shape(3, 1, p, causal);
      shape.pairs = 1;
      check(random, {shape, Packed(kRagged)});
      check(random, {shape, Packed({513, 512, 30})});
    }
}

TEST(attention_gpu, slow_path) {
  STOWAGE_NEED_GPU();
  Random random;
  for (const std::int64_t p : {2, 8, 80, 96, 192})
    check(random, {attention_shape(2, 1, p), Packed({1, 40, 7}, 3)});
  // Columns that are not aligned, at a head dimension of the fast path.
  check(random, {attention_shape(2, 1, 64), Packed({130, 7}), Dtype::bf16, 3});
  check(random, {attention_shape(2, 1, 128), Packed({130, 7}), Dtype::bf16, 4});
  check(random, {attention_shape(2, 1, 256), Packed({130, 7}), Dtype::bf16, 4});
}

TEST(attention_gpu, fp32) {
  STOWAGE_NEED_GPU();
  Random random;
  for (const std::int64_t p : {16, 64, 128})
    for (const bool causal : {true, false})
      check(random, {attention_shape(4, 2, p, causal), Packed({3, 0, 60, 130}, 5), Dtype::fp32});
}

TEST(attention_gpu, columns_of_wider_tensors) {
  STOWAGE_NEED_GPU();
  Random random;
  for (const std::int64_t p : {64, 128, 256})
    check(random, {attention_shape(2, 1, p), Packed({100, 90}), Dtype::bf16, 8});
}

void check_strides(Random& random, const StridedCase& c, Dtype storage) {
  SCOPED_TRACE(c.name + ", head_dim " + std::to_string(c.shape.head_dim));
  const StridedInputs in(random, c, storage);
  StridedAttention<DeviceArray> strided(c, in, storage);
  Gpu gpu;
  strided.run(*gpu.queue);
  gpu.queue->synchronize();
  const StridedResults actual = strided.results(), expected = dense_results(c, in);
  EXPECT_LT(relative_error(actual.o, expected.o), output_tolerance(storage));
  EXPECT_LT(rms_difference(actual.lse, expected.lse), kLseTolerance);
  EXPECT_LT(relative_error(actual.dq, expected.dq), gradient_tolerance(storage));
  EXPECT_LT(relative_error(actual.dk, expected.dk), gradient_tolerance(storage));
  EXPECT_LT(relative_error(actual.dv, expected.dv), gradient_tolerance(storage));
}

TEST(attention_gpu, free_strides) {
  STOWAGE_NEED_GPU();
  Random random;
  for (const std::int64_t p : {64, 128, 256, 40})
    for (const bool causal : {true, false})
      for (const QueryGradient way : ways_of(p))
        for (StridedCase& c : strided_cases(p, causal)) {
          c.shape.query_gradient = way;
          check_strides(random, c, Dtype::bf16);
        }
  for (const StridedCase& c : strided_cases(16, true)) check_strides(random, c, Dtype::fp32);
}

TEST(attention_gpu, strides_that_the_copy_engine_does_not_take) {
  STOWAGE_NEED_GPU();
  Random random;
  StridedCase c = strided_cases(64, true)[0];
  c.o.strides.head += 3;
  c.o.strides.row += 9;
  c.o_elements += c.packed.tokens * 9;
  check_strides(random, c, Dtype::bf16);
}

TEST(attention_gpu, equal_lengths) {
  STOWAGE_NEED_WGMMA();
  Random random;
  for (const std::int64_t p : {64, 128, 256})
    for (const std::int64_t limit : {0, 1 << 26})  // recomputed, kept
      for (const bool causal : {true, false})
        check_layout(random, {attention_shape(4, 2, p, causal), Packed({200, 200})},
                     [limit](AttentionLayout& layout) {
                       layout.uniform_length = 200;
                       layout.query_gradient = QueryGradient::stored;
                       layout.stored_limit_bytes = limit;
                     });
}

TEST(attention_gpu, equal_lengths_with_dq_inside) {
  // Many tiles of keys for each block of queries: more of them wait for their turns.
  STOWAGE_NEED_WGMMA();
  Random random;
  for (const std::int64_t p : {64, 128})
    for (const std::int64_t length : {64, 200, 1030})
      for (const bool causal : {true, false}) {
        AttentionShape shape = attention_shape(4, 2, p, causal);
        shape.query_gradient = QueryGradient::inside;
        check_layout(random, {shape, Packed({length, length})},
                     [length](AttentionLayout& layout) { layout.uniform_length = length; });
      }
}

TEST(attention_gpu, some_heads_at_a_time) {
  STOWAGE_NEED_WGMMA();
  Random random;
  constexpr std::int64_t kDocuments = 260, kLength = 128;  // 260 tiles of keys for each head
  for (const std::int64_t p : {64, 128, 256})
    for (const std::int64_t uniform_length : {std::int64_t{0}, kLength})
      check_layout(
          random,
          {attention_shape(2, 2, p), Packed(std::vector<std::int64_t>(kDocuments, kLength))},
          [&](AttentionLayout& layout) {
            layout.uniform_length = uniform_length;
            layout.query_gradient = QueryGradient::stored;
            layout.pairs = kDocuments * kLength * (kLength + 1) / 2;
            layout.stored_limit_bytes = (uniform_length > 0 ? 9 : 20) << 20;
            ASSERT_EQ(attention::make_room(layout, true).kv_heads_at_once, 1);
            ASSERT_GT(attention::make_room(layout, true).stored_per_head, 0);
          });
}

TEST(attention_gpu, no_room_for_packed_documents) {
  STOWAGE_NEED_WGMMA();
  Random random;
  for (const std::int64_t p : {64, 128, 256})
    check_layout(random, {attention_shape(3, 1, p), Packed(kRagged)}, [](AttentionLayout& layout) {
      layout.query_gradient = QueryGradient::stored;
      layout.stored_limit_bytes = 0;
    });
}

TEST(attention_gpu, large_logits) {
  // Scores of some hundreds: one key takes nearly all of a row, exp overflows without a maximum.
  STOWAGE_NEED_GPU();
  Random random;
  for (const std::int64_t p : {64, 128, 256}) {
    const AttentionCase c{attention_shape(2, 1, p), Packed({200, 133})};
    const AttentionProblem problem(random, c, 8);
    DeviceAttention device(problem);
    Gpu gpu;
    device.forward(*gpu.queue);
    device.backward(*gpu.queue);
    gpu.queue->synchronize();
    const AttentionResults actual = device.results(), expected = problem.on_host();
    EXPECT_LT(relative_error(actual.o, expected.o), output_tolerance(c.storage));
    // Scores of 300 carry 300 * 2^-24 into every exponential; both they and delta cancel in dS.
    EXPECT_LT(relative_error(actual.gradient, expected.gradient),
              4 * gradient_tolerance(c.storage));
  }
}

TEST(attention_gpu, refuses_fp64) {
  STOWAGE_NEED_GPU();
  Random random;
  const AttentionProblem problem(random, {attention_shape(1, 1, 8), Packed({3}), Dtype::fp32});
  DeviceAttention device(problem);
  Gpu gpu;
  EXPECT_ANY_THROW(
      device.launch(*gpu.queue, [](AttentionLayout& layout) { layout.storage = Dtype::fp64; }));
}

}  // namespace
}  // namespace stowage::kernels::test
