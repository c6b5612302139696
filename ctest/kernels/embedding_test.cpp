#include <gtest/gtest.h>

#include "ctest/kernels/support.hpp"
#include "kernels/embedding/embedding.hpp"

namespace stowage::kernels::test {
namespace {

struct Sizes {
  std::int64_t n, vocabulary, width;
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
      const Values table = rounded(random.normal(s.vocabulary * s.width), storage);
      const Array tables(storage, {s.vocabulary, s.width}, table), x(storage, {s.n, s.width});
      on_queue([&](Queue& q) { embedding_forward(q, int32_array(tokens), tables, x); });
      const Values copied = x.values();
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
      const Dtype accumulation = execution::accumulation(storage);
      const std::vector<std::int32_t> tokens = random_tokens(random, s);
      const Values dx = rounded(random.normal(s.n * s.width), storage);
      const Values old = rounded(random.normal(s.vocabulary * s.width), accumulation);
      const Array dxs(storage, {s.n, s.width}, dx);
      const Array stored(accumulation, {s.vocabulary, s.width});
      const Array added(accumulation, {s.vocabulary, s.width}, old);
      const Array scratch = workspace(embedding_backward_workspace_bytes(s.n, s.vocabulary));
      on_queue([&](Queue& q) {
        embedding_backward(q, int32_array(tokens), dxs, stored, scratch, false);
        embedding_backward(q, int32_array(tokens), dxs, added, scratch, true);
      });
      const double allowed = tolerance(accumulation, static_cast<double>(s.n));
      const Values zero(old.size(), 0.0);
      EXPECT_LT(relative_error(stored.values(), plain_backward(s, tokens, dx, zero)), allowed);
      EXPECT_LT(relative_error(added.values(), plain_backward(s, tokens, dx, old)), allowed);
    }
}

TEST(embedding, gradient_matches_finite_differences) {
  Random random;
  const Sizes s{6, 4, 3};
  const std::vector<std::int32_t> tokens = random_tokens(random, s);
  const Values table = random.normal(s.vocabulary * s.width), dx = random.normal(s.n * s.width);
  Values dtable(table.size());
  embedding_backward_ref(s.n, s.vocabulary, s.width, tokens.data(), dx.data(), dtable.data(),
                         false);
  const Values numeric = numeric_gradient(table, [&](const Values& values) {
    Values x(dx.size());
    embedding_forward_ref(s.n, s.width, tokens.data(), values.data(), x.data());
    return dot(dx, x);
  });
  EXPECT_LT(relative_error(dtable, numeric), 1e-8);
}

TEST(embedding, cost_of_storing_writes_the_whole_gradient) {
  EXPECT_EQ(embedding_forward_cost(10, 8, Dtype::bf16).bytes, 4.0 * 10 + 2 * 2.0 * 80);
  EXPECT_EQ(embedding_backward_cost(10, 100, 8, Dtype::bf16, false).bytes,
            4.0 * 10 + 2.0 * 80 + 4.0 * 800);
  EXPECT_EQ(embedding_backward_cost(10, 100, 8, Dtype::bf16, true).bytes,
            4.0 * 10 + 2.0 * 80 + 2 * 4.0 * 80);
}

}  // namespace
}  // namespace stowage::kernels::test
