// Permutation on a GPU against the host: indices, copies and fp32 sums in order are the same bits.

#include <cmath>

#include "ctest/kernels/operator_check.hpp"
#include "kernels/moe/balance.hpp"
#include "kernels/moe/capacity.hpp"
#include "kernels/moe/permute.hpp"

namespace stowage::kernels::test {
namespace {

enum class Load { spread, one_expert, few_experts };

struct Sizes {
  std::int64_t n, topk, experts, tail, width;
  Load load = Load::spread;

  std::int64_t pairs() const { return n * topk; }
  PermuteIndex index(std::int64_t capacity) const {
    return {
        .tokens = n, .topk = topk, .experts = experts, .rows = capacity, .storage = Dtype::fp32};
  }
  /// GatherRows or CombineRows.
  template <class Op>
  Op rows(Dtype storage) const {
    Op op{};
    op.tokens = n;
    op.topk = topk;
    op.rows = pairs();
    op.width = width;
    op.storage = storage;
    return op;
  }
};

constexpr Sizes kSizes[] = {{1, 1, 1, 0, 1},
                            {1, 2, 9, 0, 5},
                            {40, 3, 4, 7, 17},
                            {6, 2, 4, 6, 8},
                            {100, 2, 1024, 3, 33},
                            {1000, 6, 128, 11, 264},
                            {3001, 4, 32, 0, 520},
                            {700, 4, 32, 5, 2048, Load::one_expert},
                            {5000, 8, 64, 100, 24, Load::few_experts},
                            {130, 8, 16, 3, 4104},  // too many bytes a token for the copy engine
                            {77, 7, 16, 2, 4096},   // as many as it takes
                            {101, 2, 9, 5, 1024},
                            {90000, 4, 130, 1, 8}};

// Choices of each token; with `one_expert` all the same, which the index must bear too.
Values choices(Random& random, const Sizes& s) {
  Values chosen;
  const std::int64_t range = s.load == Load::few_experts ? s.topk : s.experts;
  for (std::int64_t t = 0; t < s.n; ++t) {
    const std::int64_t first = random.integer(0, range - 1);
    for (std::int64_t r = 0; r < s.topk; ++r) {
      const std::int64_t expert = s.load == Load::one_expert ? s.experts - 1 : (first + r) % range;
      chosen.push_back(t < s.n - s.tail ? static_cast<double>(expert) : -1.0);
    }
  }
  return chosen;
}

Arrays<PermuteIndex> arrays(Random& random, const Sizes& s, std::int64_t capacity) {
  const Arrays<PermuteIndex> o = make_arrays(s.index(capacity), random);
  set(o.indices, choices(random, s));
  return o;
}

void compare_index(Random& random, const Sizes& s, std::int64_t capacity, int replays) {
  SCOPED_TRACE(testing::Message() << s.n << " tokens, " << s.experts << " experts");
  const Arrays<PermuteIndex> o = arrays(random, s, capacity);
  expect_host_bits(s.index(capacity), o, replays);
  const LimitOffsets limit{s.experts, capacity};
  Arrays<LimitOffsets> l = make_arrays(limit, random);
  l.wanted = o.offsets;
  set(l.demand, {3, 5, 7});
  expect_host_bits(limit, l);
}

TEST(permute_gpu, index_is_the_hosts) {
  STOWAGE_NEED_GPU();
  Random random;
  for (const Sizes& s : kSizes) compare_index(random, s, s.pairs(), s.n == 1000 ? 100 : 2);
}

TEST(permute_gpu, with_less_capacity_the_index_is_the_hosts) {
  STOWAGE_NEED_GPU();
  Random random;
  for (const Sizes& s : kSizes)
    if (s.pairs() / 2 > 0) compare_index(random, s, s.pairs() / 2, 2);
}

TEST(capacity_gpu, what_ranks_tell_and_learn_is_the_hosts) {
  STOWAGE_NEED_GPU();
  Random random;
  for (const std::int32_t wanted : {7, 8}) {
    const TellRows tell{3, 1, {.rows = 7, .slots = 2}, Dtype::fp32};
    const Arrays<TellRows> t = make_arrays(tell, random);
    set(t.demand, {static_cast<double>(wanted), 4, 2});
    expect_host_bits(tell, t, 3);
    const JudgeRows judge{3, Dtype::fp32};
    Arrays<JudgeRows> j = make_arrays(judge, random);
    j.rows = t.rows;
    set(j.step_ok, {2});
    expect_host_bits(judge, j, 3);
  }
}

TEST(permute_gpu, index_of_two_clusters) {  // small enough for a race checker
  STOWAGE_NEED_GPU();
  Random random;
  const Sizes s{2900, 4, 70, 9, 1};
  compare_index(random, s, s.pairs(), 1);
}

TEST(permute_gpu, gather_and_combine_are_the_hosts) {
  STOWAGE_NEED_GPU();
  Random random;
  for (const Sizes& s : kSizes)
    for (const Dtype storage : {Dtype::fp32, Dtype::bf16}) {
      SCOPED_TRACE(testing::Message() << s.n << " tokens of " << s.width);
      const Arrays<PermuteIndex> index = arrays(random, s, s.pairs());
      run(s.index(s.pairs()), index);
      const GatherRows gather = s.rows<GatherRows>(storage);
      Arrays<GatherRows> g = make_arrays(gather, random);
      g.token_row = index.token_row;
      expect_host_bits(gather, g, 3);
      for (const bool accumulate : {false, true}) {
        CombineRows combine = s.rows<CombineRows>(storage);
        combine.accumulate = accumulate;
        Arrays<CombineRows> c = make_arrays(combine, random);
        c.token_row = index.token_row;
        Values values = c.ys.values();
        const auto routed = std::lround(index.offsets.values().back());
        std::fill(values.begin() + routed * s.width, values.end(), NAN);  // no row: never read
        set(c.ys, values);
        expect_host_bits(combine, c, 3);
      }
    }
}

TEST(permute_gpu, load_and_bias_are_the_hosts) {
  STOWAGE_NEED_GPU();
  Random random;
  for (const std::int64_t experts : {1, 32, 130, 1000})
    for (const int ok : {0, 1}) {
      Values starts{0};
      for (std::int64_t e = 0; e < experts; ++e)
        starts.push_back(starts.back() + static_cast<double>(random.integer(0, 9)));
      const ExpertBiasUpdate update{experts, Dtype::fp32, 1e-3};
      Arrays<ExpertBiasUpdate> u = make_arrays(update, random);
      set(u.step_ok, {static_cast<double>(ok)});
      for (const bool accumulate : {true, false}) {
        const ExpertLoad load{experts, Dtype::fp32, accumulate};
        const Arrays<ExpertLoad> l = make_arrays(load, random);
        set(l.offsets, starts);
        expect_host_bits(load, l, 3);
        u.load = l.load;
      }
      expect_host_bits(update, u, 3);
    }
}

}  // namespace
}  // namespace stowage::kernels::test
