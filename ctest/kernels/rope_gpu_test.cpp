// Rotary positions on a GPU against the host reference in fp64 on inputs as rounded to storage.

#include "ctest/kernels/operator_check.hpp"
#include "ctest/kernels/packed.hpp"
#include "kernels/rope/rope.hpp"

namespace stowage::kernels::test {
namespace {

struct Sizes {
  std::vector<std::int64_t> lengths;
  std::int64_t tail, heads, kv_heads, head_dim;
  std::int64_t rotary_dim = 0;  ///< 0: all of a head
};

// Both directions on the same values.
void check(const Sizes& s, Dtype storage, const RopeFrequencies& frequencies, Random& random) {
  const Packed packed(s.lengths, s.tail);
  for (const bool backward : {false, true}) {
    const Rope op{.tokens = packed.tokens,
                  .heads = s.heads,
                  .kv_heads = s.kv_heads,
                  .head_dim = s.head_dim,
                  .rotary_dim = s.rotary_dim > 0 ? s.rotary_dim : s.head_dim,
                  .starts = packed.cu_seqlens().view().extent(0),
                  .storage = storage,
                  .frequencies = frequencies,
                  .backward = backward};
    Arrays<Rope> o = make_arrays(op, random);
    o.cu_seqlens = packed.cu_seqlens(), o.seq_idx = packed.seq_idx();
    check_on_gpu(
        op, o, [&](std::string_view) { return tolerance(storage, 4); }, 3);
  }
}

TEST(rope_gpu, matches_fp64) {
  STOWAGE_NEED_GPU();
  Random random;
  const std::vector<Sizes> sizes = {{{1}, 0, 1, 1, 2},
                                    {{5, 1, 9}, 3, 3, 1, 6},
                                    {{100, 37, 1, 1}, 5, 4, 2, 64},
                                    {{1000}, 0, 16, 4, 128},
                                    {{70}, 0, 2, 1, 80},
                                    {{}, 0, 2, 1, 16},
                                    {{1000, 3}, 2, 8, 2, 256, 64},
                                    {{70}, 1, 2, 1, 80, 20},
                                    {{9}, 0, 1, 1, 6, 4}};
  for (const Sizes& s : sizes)
    for (const Dtype storage : kDeviceTypes) check(s, storage, {1e4}, random);
}

TEST(rope_gpu, scaled_matches_fp64) {
  STOWAGE_NEED_GPU();
  Random random;
  const RopeFrequencies llama{500000, 8, 1, 4, 8192};
  for (const Sizes& s : {Sizes{{5, 1, 9}, 3, 3, 1, 6}, Sizes{{1000}, 0, 4, 2, 128}})
    for (const Dtype storage : kDeviceTypes) check(s, storage, llama, random);
}

// One long document: angles of 10^5 radians keep their digits.
TEST(rope_gpu, far_positions) {
  STOWAGE_NEED_GPU();
  Random random;
  check({{120000}, 0, 1, 1, 8}, Dtype::fp32, {1e4}, random);
}

TEST(rope_gpu, given_positions_match_fp64) {
  STOWAGE_NEED_GPU();
  Random random;
  for (const Dtype storage : kDeviceTypes) {
    const Rope op{.tokens = 5,
                  .heads = 4,
                  .kv_heads = 2,
                  .head_dim = 64,
                  .rotary_dim = 32,
                  .starts = 0,
                  .storage = storage,
                  .frequencies = {1e4},
                  .positions = true};
    const Arrays<Rope> o = make_arrays(op, random);
    set(o.positions, {0, 7, 100000, 1, 255});
    check_on_gpu(
        op, o, [&](std::string_view) { return tolerance(storage, 4); }, 3);
  }
}

TEST(rope_gpu, in_place_leaves_the_same_bits) {
  STOWAGE_NEED_GPU();
  Random random;
  for (const std::int64_t dim : {64, 6, 256}) {
    const Packed packed({33, 70}, 2);
    const Rope op{.tokens = packed.tokens,
                  .heads = 4,
                  .kv_heads = 2,
                  .head_dim = dim,
                  .rotary_dim = dim == 256 ? 64 : dim,
                  .starts = packed.cu_seqlens().view().extent(0),
                  .storage = Dtype::bf16,
                  .frequencies = {1e4}};
    Arrays<Rope> apart = make_arrays(op, random);
    apart.cu_seqlens = packed.cu_seqlens(), apart.seq_idx = packed.seq_idx();
    Arrays<Rope> together = apart;
    together.out = apart.in;
    EXPECT_EQ(on_gpu(op, together, {together.out})[0].values(),
              on_gpu(op, apart, {apart.out})[0].values());
  }
}

}  // namespace
}  // namespace stowage::kernels::test
