#include <gtest/gtest.h>

#include "ctest/kernels/operator_arrays.hpp"
#include "kernels/embedding/embedding.hpp"

namespace stowage::kernels::test {
namespace {

struct Sizes {
  std::int64_t n, vocabulary, width;

  EmbeddingForward forward(Dtype storage) const {
    return {.tokens = n, .vocabulary = vocabulary, .width = width, .storage = storage};
  }
  EmbeddingBackward backward(Dtype storage, bool accumulate) const {
    return {.tokens = n,
            .vocabulary = vocabulary,
            .width = width,
            .storage = storage,
            .accumulate = accumulate};
  }
};

constexpr Sizes kSizes[] = {{1, 1, 1}, {1, 9, 5}, {70, 7, 33}, {300, 501, 67}};

std::vector<std::int32_t> random_tokens(Random& random, const Sizes& s) {
  std::vector<std::int32_t> tokens;
  for (std::int64_t t = 0; t < s.n; ++t)
    tokens.push_back(static_cast<std::int32_t>(random.integer(0, s.vocabulary - 1)));
  return tokens;
}

TEST(embedding, forward_copies_rows) {
  Random random;
  for (const Sizes& s : kSizes)
    for (const Dtype storage : kFloatingTypes) {
      const std::vector<std::int32_t> tokens = random_tokens(random, s);
      Arrays<EmbeddingForward> o = make_arrays(s.forward(storage), random);
      o.token = int32_array(tokens);
      run(s.forward(storage), o);
      const Values copied = o.x.values(), table = o.table.values();
      for (std::int64_t t = 0; t < s.n; ++t)
        for (std::int64_t j = 0; j < s.width; ++j)
          ASSERT_EQ(copied[t * s.width + j], table[tokens[t] * s.width + j]);
    }
}

// dtable by a sum in fp64, starting from `old`.
Values plain_backward(const Sizes& s, const std::vector<std::int32_t>& tokens, const Values& dx,
                      Values old) {
  for (std::size_t t = 0; t < tokens.size(); ++t)
    for (std::int64_t j = 0; j < s.width; ++j)
      old[tokens[t] * s.width + j] +=
          dx[t * static_cast<std::size_t>(s.width) + static_cast<std::size_t>(j)];
  return old;
}

TEST(embedding, backward_sums_rows_in_order) {
  Random random;
  for (const Sizes& s : kSizes)
    for (const Dtype storage : kFloatingTypes) {
      const std::vector<std::int32_t> tokens = random_tokens(random, s);
      for (const bool accumulate : {false, true}) {
        const EmbeddingBackward op = s.backward(storage, accumulate);
        Arrays<EmbeddingBackward> o = make_arrays(op, random);
        o.token = int32_array(tokens);
        const Values old = accumulate ? o.dtable.values() : Values(o.dtable.size(), 0.0);
        run(op, o);
        EXPECT_LT(relative_error(o.dtable.values(), plain_backward(s, tokens, o.dx.values(), old)),
                  tolerance(execution::accumulation(storage), static_cast<double>(s.n)));
      }
    }
}

TEST(embedding, gradient_matches_finite_differences) {
  Random random;
  const Sizes s{6, 4, 3};
  const std::vector<std::int32_t> tokens = random_tokens(random, s);
  const Array token = int32_array(tokens);
  Arrays<EmbeddingForward> f = make_arrays(s.forward(Dtype::fp64), random);
  Arrays<EmbeddingBackward> b = make_arrays(s.backward(Dtype::fp64, false), random);
  f.token = b.token = token;
  run(s.backward(Dtype::fp64, false), b);
  const Values numeric = numeric_gradient(f.table.values(), [&](const Values& values) {
    set(f.table, values);
    run(s.forward(Dtype::fp64), f);
    return dot(b.dx.values(), f.x.values());
  });
  EXPECT_LT(relative_error(b.dtable.values(), numeric), 1e-8);
}

TEST(embedding, cost_of_storing_writes_the_whole_gradient) {
  const Sizes s{10, 100, 8};
  EXPECT_EQ(s.forward(Dtype::bf16).cost().bytes, 4.0 * 10 + 2 * 2.0 * 80);
  EXPECT_EQ(s.backward(Dtype::bf16, false).cost().bytes, 4.0 * 10 + 2.0 * 80 + 4.0 * 800);
  EXPECT_EQ(s.backward(Dtype::bf16, true).cost().bytes, 4.0 * 10 + 2.0 * 80 + 2 * 4.0 * 80);
}

}  // namespace
}  // namespace stowage::kernels::test
