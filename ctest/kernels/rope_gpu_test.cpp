// Rotary positions on a GPU against the host reference in fp64 on inputs as rounded to storage.

#include "ctest/kernels/device_check.hpp"
#include "ctest/kernels/packed.hpp"
#include "kernels/rope/rope.hpp"

namespace stowage::kernels::test {
namespace {

struct Sizes {
  std::vector<std::int64_t> lengths;
  std::int64_t tail, heads, kv_heads, head_dim;
};

class Rotations {
 public:
  Rotations(Dtype storage, const Sizes& s, const Packed& packed, const Values& in,
            const RopeFrequencies& frequencies)
      : s_(s),
        frequencies_(frequencies),
        in_(storage, {packed.tokens, (s.heads + 2 * s.kv_heads) * s.head_dim}, in),
        out_(storage, in_.view().info->buffers[0].shape),
        back_(storage, in_.view().info->buffers[0].shape),
        starts_(packed.cu_seqlens()),
        documents_(packed.seq_idx()) {}

  template <class At>
  void enqueue(Queue& q, At& at) const {
    rope_forward(q, at(in_), at(starts_), at(documents_), at(out_), s_.heads, s_.kv_heads,
                 s_.head_dim, frequencies_);
    rope_backward(q, at(in_), at(starts_), at(documents_), at(back_), s_.heads, s_.kv_heads,
                  s_.head_dim, frequencies_);
  }
  std::vector<Output> outputs() const {
    return {{"out", out_, tolerance(in_.dtype(), 4)}, {"back", back_, tolerance(in_.dtype(), 4)}};
  }

 private:
  Sizes s_;
  RopeFrequencies frequencies_;
  Array in_, out_, back_, starts_, documents_;
};

TEST(rope_gpu, matches_fp64) {
  STOWAGE_NEED_GPU();
  Random random;
  const std::vector<Sizes> sizes = {
      {{1}, 0, 1, 1, 2},       {{5, 1, 9}, 3, 3, 1, 6}, {{100, 37, 1, 1}, 5, 4, 2, 64},
      {{1000}, 0, 16, 4, 128}, {{70}, 0, 2, 1, 80},     {{}, 0, 2, 1, 16}};
  for (const Sizes& s : sizes)
    for (const Dtype storage : kDeviceTypes) {
      const Packed packed(s.lengths, s.tail);
      const std::int64_t count = packed.tokens * (s.heads + 2 * s.kv_heads) * s.head_dim;
      const Values in = rounded(random.normal(count), storage);
      check_on_gpu(Rotations(storage, s, packed, in, {1e4}),
                   Rotations(Dtype::fp64, s, packed, in, {1e4}));
    }
}

TEST(rope_gpu, scaled_matches_fp64) {
  STOWAGE_NEED_GPU();
  Random random;
  const RopeFrequencies llama{500000, 8, 1, 4, 8192};
  for (const Sizes& s : {Sizes{{5, 1, 9}, 3, 3, 1, 6}, Sizes{{1000}, 0, 4, 2, 128}})
    for (const Dtype storage : kDeviceTypes) {
      const Packed packed(s.lengths, s.tail);
      const Values in =
          rounded(random.normal(packed.tokens * (s.heads + 2 * s.kv_heads) * s.head_dim), storage);
      check_on_gpu(Rotations(storage, s, packed, in, llama),
                   Rotations(Dtype::fp64, s, packed, in, llama));
    }
}

// One long document: angles of 10^5 radians keep their digits.
TEST(rope_gpu, far_positions) {
  STOWAGE_NEED_GPU();
  Random random;
  const Sizes s{{120000}, 0, 1, 1, 8};
  const Packed packed(s.lengths, s.tail);
  const Values in = rounded(random.normal(packed.tokens * 24), Dtype::fp32);
  check_on_gpu(Rotations(Dtype::fp32, s, packed, in, {1e4}),
               Rotations(Dtype::fp64, s, packed, in, {1e4}));
}

TEST(rope_gpu, in_place_leaves_the_same_bits) {
  STOWAGE_NEED_GPU();
  Random random;
  for (const std::int64_t dim : {64, 6}) {
    const Packed packed({33, 70}, 2);
    const std::int64_t width = 8 * dim;
    const Array in(Dtype::bf16, {packed.tokens, width}, random.normal(packed.tokens * width));
    const Array out(Dtype::bf16, {packed.tokens, width});
    const Array starts = packed.cu_seqlens(), documents = packed.seq_idx();
    const auto rotate = [&](const Array& to) {
      return on_gpu(
          [&](Queue& q, auto& at) {
            rope_forward(q, at(in), at(starts), at(documents), at(to), 4, 2, dim, {1e4});
          },
          {to})[0];
    };
    EXPECT_EQ(rotate(in).values(), rotate(out).values());
  }
}

}  // namespace
}  // namespace stowage::kernels::test
