// The convolution on a GPU: against its host reference in fp64 and, term by term, its definition,
// on inputs as rounded.

#include <cmath>

#include "ctest/kernels/operator_check.hpp"
#include "ctest/kernels/packed.hpp"
#include "kernels/conv1d/conv1d.hpp"

namespace stowage::kernels::test {
namespace {

struct Case {
  std::int64_t channels, before;  ///< columns of x and dx, and of others before them
  Packed packed;
  std::int64_t taps = 4;
  bool halo = false, biased = true;

  template <class Op>
  Op op(Dtype storage) const {
    Op op{};
    op.tokens = packed.tokens;
    op.channels = channels;
    op.width = taps;
    op.storage = storage;
    op.halo = halo;
    op.biased = biased;
    return op;
  }
  template <class Op>
  Arrays<Op> arrays(const Op& op, Random& random) const {
    const Arrays<Op> o = make_arrays(op, random, before);
    set(o.w, random.normal(channels * taps, 0.5));
    if (biased) set(o.b, random.normal(channels, 0.2));
    set(o.seq_idx, {packed.document.begin(), packed.document.end()});
    return o;
  }
};

void compare(const Case& c, Dtype storage) {
  SCOPED_TRACE(testing::Message() << c.channels << " channels in " << execution::name(storage));
  Random random;
  const auto bound = [&](std::string_view name) {
    if (name == "dw" || name == "db")
      return tolerance(Dtype::fp32, static_cast<double>(c.packed.tokens), 16);
    return tolerance(storage, kConv1dMaxWidth, 16);
  };
  const auto forward = c.op<Conv1dForward>(storage);
  check_on_gpu(forward, c.arrays(forward, random), bound);
  auto backward = c.op<Conv1dBackward>(storage);
  check_on_gpu(backward, c.arrays(backward, random), bound, 100);
  backward.accumulate = true;
  check_on_gpu(backward, c.arrays(backward, random), bound);
}

struct Results {
  Values y, dx, dhalo, dw, db;
};

/// As the definition has it.
Results definition(const Case& c, const Arrays<Conv1dBackward>& in) {
  const std::int64_t n = c.packed.tokens, channels = c.channels;
  const Values x = values(in.x), w = in.w.values(), b = in.b.values(), dy = in.dy.values();
  const Values halo = c.halo ? in.halo.values() : Values();
  Results r{Values(x.size()), Values(x.size()), Values(at(3 * channels)), Values(w.size()),
            Values(b.size())};
  for (std::int64_t t = 0; t < n; ++t)
    for (std::int64_t j = 0; j < channels; ++j) {
      const auto of_document = [&](std::int64_t row) {
        return row < 0 ? c.halo && c.packed.same(0, t) : c.packed.same(row, t);
      };
      const auto value = [&](std::int64_t row) {
        return row < 0 ? halo[at((row + 3) * channels + j)] : x[at(row * channels + j)];
      };
      double u = b[at(j)];
      for (std::int64_t k = 0; k < c.taps; ++k) {
        const std::int64_t row = t - c.taps + 1 + k;
        if (of_document(row)) u += w[at(j * c.taps + k)] * value(row);
      }
      const double sigmoid = 1 / (1 + std::exp(-u));
      r.y[at(t * channels + j)] = u * sigmoid;
      const double g = dy[at(t * channels + j)] * sigmoid * (1 + u * (1 - sigmoid));
      r.db[at(j)] += g;
      for (std::int64_t k = 0; k < c.taps; ++k) {
        const std::int64_t row = t - c.taps + 1 + k;
        if (!of_document(row)) continue;
        r.dw[at(j * c.taps + k)] += g * value(row);
        (row < 0 ? r.dhalo[at((row + 3) * channels + j)] : r.dx[at(row * channels + j)]) +=
            g * w[at(j * c.taps + k)];
      }
    }
  return r;
}

/// In bf16, by the vector kernels. About so many documents begin at random, 0: one.
void compare_with_definition(std::int64_t tokens, std::int64_t channels, int documents,
                             std::int64_t taps = 4, bool halo = false) {
  Case c{channels, 0, Packed({tokens}), taps, halo};
  Random random;
  for (std::int64_t t = 1, document = 0; t < tokens; ++t) {
    document += random.integer(1, tokens) <= documents ? 1 : 0;
    c.packed.document[at(t)] = static_cast<std::int32_t>(document);
  }
  const auto backward = c.op<Conv1dBackward>(Dtype::bf16);
  const Arrays<Conv1dBackward> b = c.arrays(backward, random);
  const auto forward = c.op<Conv1dForward>(Dtype::bf16);
  const Array y(Dtype::bf16, {tokens, channels});
  const Results expected = definition(c, b);
  const auto ours = on_gpu(
      forward, {.x = b.x, .w = b.w, .b = b.b, .seq_idx = b.seq_idx, .y = y, .halo = b.halo}, {y});
  std::vector<Array> outputs = {b.dx.whole, b.dw, b.db};
  if (halo) outputs.push_back(b.dhalo);
  const auto gradients = on_gpu(backward, b, outputs);
  constexpr double kRounded = 0x1p-8;       // one rounding to bf16: at most 2^-9
  constexpr double kSummed = 64 * 0x1p-24;  // fp32 sums of products of fp32 factors
  EXPECT_LT(relative_error(ours[0].values(), expected.y), kRounded);
  EXPECT_LT(relative_error(stored({gradients[0], b.dx.first, channels}), expected.dx), kRounded);
  EXPECT_LT(relative_error(gradients[1].values(), expected.dw), kSummed);
  EXPECT_LT(relative_error(gradients[2].values(), expected.db), kSummed);
  if (halo) {
    EXPECT_LT(relative_error(gradients[3].values(), expected.dhalo), kRounded);
  }
}

Packed documents() { return Packed({70, 1, 1, 2, 3, 4, 62, 64, 33, 528, 5}, 21); }

TEST(conv1d_gpu, fp32) {
  STOWAGE_NEED_GPU();
  compare({37, 5, documents()}, Dtype::fp32);
  compare({320, 0, Packed({1})}, Dtype::fp32);
  compare({320, 64, Packed({2, 200})}, Dtype::fp32);
  compare({320, 64, Packed({2, 200}), 4, true}, Dtype::fp32);
}

TEST(conv1d_gpu, bf16_any_columns) {
  STOWAGE_NEED_GPU();
  compare({37, 5, documents()}, Dtype::bf16);
  compare({37, 5, documents(), 4, true}, Dtype::bf16);
  compare({272, 14, documents()}, Dtype::bf16);
}

TEST(conv1d_gpu, bf16_by_vectors) {
  STOWAGE_NEED_GPU();
  compare({264, 64, Packed({1})}, Dtype::bf16);
  compare({1032, 16, documents()}, Dtype::bf16);
}

TEST(conv1d_gpu, narrower_filters) {
  STOWAGE_NEED_GPU();
  for (const std::int64_t taps : {2, 3}) {
    compare({37, 5, documents(), taps}, Dtype::fp32);
    compare({37, 5, documents(), taps}, Dtype::bf16);
    compare({1032, 16, documents(), taps}, Dtype::bf16);
  }
}

TEST(conv1d_gpu, without_a_bias) {
  STOWAGE_NEED_GPU();
  for (const Dtype storage : {Dtype::fp32, Dtype::bf16}) {
    compare({37, 5, documents(), 4, true, false}, storage);
    compare({1032, 16, documents(), 3, false, false}, storage);
  }
}

TEST(conv1d_gpu, as_defined) {
  STOWAGE_NEED_GPU();
  compare_with_definition(1, 8, 0);
  compare_with_definition(67, 264, 0, 4, true);
  compare_with_definition(515, 136, 9, 4, true);
  compare_with_definition(1000, 520, 300);  // many documents
  compare_with_definition(333, 128, 333);   // each token is one
  for (const std::int64_t taps : {2, 3}) {
    compare_with_definition(67, 264, 0, taps, true);
    compare_with_definition(515, 136, 9, taps, true);
    compare_with_definition(1000, 520, 300, taps);
  }
}

TEST(conv1d_gpu, no_tokens) {
  STOWAGE_NEED_GPU();
  const Case c{16, 0, Packed({})};
  Random random;
  for (const Dtype storage : {Dtype::fp32, Dtype::bf16}) {
    const auto op = c.op<Conv1dBackward>(storage);
    const Arrays<Conv1dBackward> o = c.arrays(op, random);
    const auto sums = on_gpu(op, o, {o.dw, o.db});
    EXPECT_EQ(sums[0].values(), Values(64, 0.0));
    EXPECT_EQ(sums[1].values(), Values(16, 0.0));
  }
}

}  // namespace
}  // namespace stowage::kernels::test
