// The embedding on a GPU against the host reference in fp64 on inputs as rounded to storage.

#include "ctest/kernels/device_check.hpp"
#include "kernels/embedding/embedding.hpp"

namespace stowage::kernels::test {
namespace {

struct Sizes {
  std::int64_t tokens, vocabulary, width;
  int skew;  // tokens are the least of so many draws: 1 is uniform
  bool accumulate;
};

class Embedding {
 public:
  Embedding(Dtype storage, const Sizes& s, const std::vector<std::int32_t>& tokens,
            const Values& table, const Values& dx, const Values& old)
      : s_(s),
        sums_(execution::accumulation(storage)),
        tokens_(int32_array(tokens)),
        table_(storage, {s.vocabulary, s.width}, table),
        x_(storage, {s.tokens, s.width}),
        dx_(storage, {s.tokens, s.width}, dx),
        dtable_(s.accumulate ? Array(sums_, {s.vocabulary, s.width}, old)
                             : Array(sums_, {s.vocabulary, s.width})),
        room_(workspace(embedding_backward_workspace_bytes(s.tokens, s.vocabulary))) {}

  template <class At>
  void enqueue(Queue& q, At& at) const {
    embedding_forward(q, at(tokens_), at(table_), at(x_));
    embedding_backward(q, at(tokens_), at(dx_), at(dtable_), at(room_), s_.accumulate);
  }
  std::vector<Output> outputs() const {
    return {{"x", x_, 0}, {"dtable", dtable_, tolerance(sums_, static_cast<double>(s_.tokens))}};
  }

 private:
  Sizes s_;
  Dtype sums_;
  Array tokens_, table_, x_, dx_, dtable_, room_;
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
      const Values table = rounded(random.normal(s.vocabulary * s.width), storage);
      const Values dx = rounded(random.normal(s.tokens * s.width), storage);
      const Values old = rounded(random.normal(s.vocabulary * s.width), Dtype::fp32);
      check_on_gpu(Embedding(storage, s, tokens, table, dx, old),
                   Embedding(Dtype::fp64, s, tokens, table, dx, old), s.skew > 1 ? 100 : 2);
    }
}

}  // namespace
}  // namespace stowage::kernels::test
