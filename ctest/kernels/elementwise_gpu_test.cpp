// Elementwise, document and microbatch operators on a GPU: the same bits as on the host.

#include "ctest/kernels/device_mirror.hpp"
#include "ctest/kernels/operator_arrays.hpp"
#include "kernels/documents/document_index.hpp"
#include "kernels/documents/later_tokens.hpp"
#include "kernels/elementwise/elementwise.hpp"
#include "kernels/microbatch/take_row.hpp"

namespace stowage::kernels::test {
namespace {

constexpr std::int64_t kCounts[] = {1, 7, 8, 1000, 20011, 65536};

// Runs `work` on both backends and expects the same bytes in `outputs`.
template <class Work>
void expect_same(const Work& work, const std::vector<Array>& outputs) {
  const std::vector<Array> results = on_gpu(work, outputs);
  on_queue([&](Queue& q) {
    const auto here = [](const Array& array) { return array.view(); };
    work(q, here);
  });
  for (std::size_t i = 0; i < outputs.size(); ++i)
    EXPECT_TRUE(std::ranges::equal(bytes_of(results[i]), bytes_of(outputs[i]))) << "output " << i;
}

TEST(elementwise_gpu, add_is_the_hosts) {
  STOWAGE_NEED_GPU();
  Random random;
  for (const Dtype storage : kFloatingTypes)
    for (const std::int64_t count : kCounts) {
      const Array a(storage, {count}, random.normal(count)),
          b(storage, {count}, random.normal(count));
      const Array out(storage, {count});
      expect_same(
          [&](Queue& q, auto& at) {
            const Add op{out.view().buffer()};
            enqueue(q, op, {.a = a, .b = b, .out = out}, at);
            enqueue(q, op, {.a = a, .b = b, .out = a}, at);
          },
          {out, a});
    }
}

TEST(elementwise_gpu, scale_is_the_hosts) {
  STOWAGE_NEED_GPU();
  Random random;
  for (const Dtype storage : kFloatingTypes)
    for (const std::int64_t count : kCounts) {
      const Array x(storage, {count}, random.normal(count)), y(storage, {count});
      const Scale op{x.view().buffer(), 0.3};
      expect_same([&](Queue& q, auto& at) { enqueue(q, op, {.x = x, .y = y}, at); }, {y});
    }
}

TEST(elementwise_gpu, fill_is_the_hosts) {
  STOWAGE_NEED_GPU();
  for (const Dtype dtype :
       {Dtype::fp64, Dtype::fp32, Dtype::bf16, Dtype::int32, Dtype::int64, Dtype::uint8})
    for (const std::int64_t count : kCounts) {
      const Array x(dtype, {count});
      expect_same([&](Queue& q, auto& at) { fill(q, at(x), 5.3); }, {x});
    }
}

TEST(elementwise_gpu, fill_normal_is_the_hosts) {
  STOWAGE_NEED_GPU();
  for (const Dtype dtype : kFloatingTypes)
    for (const std::int64_t count : kCounts) {
      const Array x(dtype, {count});
      expect_same([&](Queue& q, auto& at) { fill_normal(q, at(x), 5, 99, 3e-7F); }, {x});
    }
}

TEST(elementwise_gpu, cast_is_the_hosts) {
  STOWAGE_NEED_GPU();
  Random random;
  const Dtype pairs[][2] = {{Dtype::fp64, Dtype::fp64},
                            {Dtype::fp32, Dtype::fp32},
                            {Dtype::fp32, Dtype::bf16},
                            {Dtype::bf16, Dtype::fp32},
                            {Dtype::bf16, Dtype::bf16}};
  for (const auto& [from, to] : pairs)
    for (const std::int64_t count : kCounts) {
      Values values = random.normal(count);
      values[0] = 257;  // a tie in bf16
      const Array x(from, {count}, values), y(to, {count});
      const Cast op{x.view().buffer(), to};
      expect_same([&](Queue& q, auto& at) { enqueue(q, op, {.x = x, .y = y}, at); }, {y});
    }
}

TEST(elementwise_gpu, documents_are_the_hosts) {
  STOWAGE_NEED_GPU();
  Random random;
  for (const std::int64_t tokens : kCounts) {
    std::vector<std::int32_t> starts{0};
    while (starts.back() < tokens * 9 / 10)
      starts.push_back(starts.back() + static_cast<std::int32_t>(random.integer(0, 30)));
    starts.insert(starts.end(), 5, starts.back());
    const Array ends = int32_array(starts), index(Dtype::int32, {tokens});
    const DocumentIndex op{tokens, static_cast<std::int64_t>(starts.size()) - 1};
    expect_same(
        [&](Queue& q, auto& at) { enqueue(q, op, {.cu_seqlens = ends, .seq_idx = index}, at); },
        {index});
  }
}

TEST(elementwise_gpu, later_tokens_are_the_hosts) {
  STOWAGE_NEED_GPU();
  Random random;
  for (const std::int64_t tokens : kCounts) {
    std::vector<std::int32_t> ids, documents;
    for (std::int64_t t = 0; t < tokens; ++t) {
      ids.push_back(static_cast<std::int32_t>(random.integer(-1, 60000)));
      documents.push_back(static_cast<std::int32_t>(t / 5));
    }
    const Array from = int32_array(ids), seq_idx = int32_array(documents);
    const Array later(Dtype::int32, {tokens});
    expect_same(
        [&](Queue& q, auto& at) {
          enqueue(q, LaterTokens{tokens, 2}, {.ids = from, .seq_idx = seq_idx, .later = later}, at);
        },
        {later});
  }
}

TEST(elementwise_gpu, row_of_the_microbatch_at_work) {
  STOWAGE_NEED_GPU();
  Random random;
  for (const std::int64_t width : kCounts) {
    Values tokens;
    for (std::int64_t i = 0; i < 3 * width; ++i)
      tokens.push_back(static_cast<double>(random.integer(-1, 60000)));
    const Array stack(Dtype::int32, {3, width}, tokens), at_work = int32_array({1});
    const Array second(Dtype::int32, {width}), third(Dtype::int32, {width});
    expect_same(
        [&](Queue& q, auto& at) {
          const TakeRow take{3, width};
          enqueue(q, take, {.stack = stack, .index = at_work, .row = second}, at);
          enqueue(q, AdvanceIndex{}, {.index = at_work}, at);
          enqueue(q, take, {.stack = stack, .index = at_work, .row = third}, at);
        },
        {second, third, at_work});
  }
}

}  // namespace
}  // namespace stowage::kernels::test
