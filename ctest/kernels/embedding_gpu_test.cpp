// The embedding on a GPU against the host reference in fp64 on inputs as rounded to storage.

#include "ctest/kernels/operator_check.hpp"
#include "kernels/embedding/embedding.hpp"

namespace stowage::kernels::test {
namespace {

struct Sizes {
  std::int64_t tokens, vocabulary, width;
  int skew;  // tokens are the least of so many draws: 1 is uniform
  bool accumulate;
};

TEST(embedding_gpu, matches_fp64) {
  STOWAGE_NEED_GPU();
  Random random;
  // One token, none, odd widths, lists at the border between short and long, one list of all.
  const Sizes sizes[] = {
      {1, 1, 1, 1, false},          {0, 9, 16, 1, false},     {0, 9, 16, 1, true},
      {40, 7, 5, 1, true},          {64, 2, 8, 1, false},     {33, 1, 40, 1, false},
      {3000, 700, 72, 9, true},     {2000, 1, 257, 1, true},  {5000, 1, 2048, 1, false},
      {4096, 5000, 1024, 2, false}, {9000, 256, 96, 3, false}};
  for (const Sizes& s : sizes)
    for (const Dtype storage : kDeviceTypes) {
      SCOPED_TRACE(testing::Message() << s.tokens << " of " << s.vocabulary << " x " << s.width);
      std::vector<std::int32_t> tokens(static_cast<std::size_t>(s.tokens));
      for (std::int32_t& token : tokens) {
        std::int64_t drawn = s.vocabulary - 1;
        for (int i = 0; i < s.skew; ++i)
          drawn = std::min(drawn, random.integer(0, s.vocabulary - 1));
        token = static_cast<std::int32_t>(drawn);
      }
      const int replays = s.skew > 1 ? 100 : 2;
      const EmbeddingForward forward{
          .tokens = s.tokens, .vocabulary = s.vocabulary, .width = s.width, .storage = storage};
      Arrays<EmbeddingForward> f = make_arrays(forward, random);
      f.token = int32_array(tokens);
      check_on_gpu(
          forward, f, [](std::string_view) { return 0; }, replays);
      const EmbeddingBackward backward{.tokens = s.tokens,
                                       .vocabulary = s.vocabulary,
                                       .width = s.width,
                                       .storage = storage,
                                       .accumulate = s.accumulate};
      Arrays<EmbeddingBackward> b = make_arrays(backward, random);
      b.token = f.token;
      const double bound =
          tolerance(execution::accumulation(storage), static_cast<double>(s.tokens));
      check_on_gpu(
          backward, b, [&](std::string_view) { return bound; }, replays);
    }
}

}  // namespace
}  // namespace stowage::kernels::test
