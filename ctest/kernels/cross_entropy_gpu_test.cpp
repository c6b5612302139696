// The fused head and loss on a GPU against the host reference in fp64.

#include <algorithm>
#include <cmath>
#include <string_view>
#include <vector>

#include "ctest/kernels/operator_check.hpp"
#include "ctest/kernels/packed.hpp"
#include "kernels/cross_entropy/linear_cross_entropy.hpp"
#include "kernels/cross_entropy/loss_sum.hpp"
#include "kernels/cross_entropy/row_chunk.hpp"
#include "kernels/cross_entropy/sharded_cross_entropy.hpp"
#include "kernels/cross_entropy/softmax_launch.hpp"
#include "kernels/cross_entropy/source_losses.hpp"
#include "kernels/launch.hpp"

namespace stowage::kernels::test {
namespace {

struct Sizes {
  std::int64_t tokens, vocabulary, width;
  bool accumulate;
};

// One token, none, odd sizes, a vocabulary of several steps of a block, more rows than one chunk
// with a part of a chunk at the end.
constexpr Sizes kSizes[] = {{1, 1, 1, false},      {1, 7, 3, true},      {0, 8, 8, false},
                            {13, 21, 5, false},    {70, 300, 33, true},  {130, 9001, 16, false},
                            {64, 40000, 24, true}, {4500, 40, 16, true}, {300, 1024, 64, false}};

// How much larger the terms of dh = sum_j g_j w_j are, by norm, than the sums: each g_j is rounded,
// and in a few tokens of a small vocabulary the terms may nearly cancel.
double cancellation(const Sizes& s, const Values& h, const Values& w,
                    const std::vector<std::int32_t>& targets, double z_coeff) {
  const auto vocabulary = static_cast<std::size_t>(s.vocabulary);
  const auto width = static_cast<std::size_t>(s.width);
  double terms = 0, sums = 0;
  std::vector<double> share(vocabulary), dh(width);
  for (std::size_t t = 0; t < targets.size(); ++t) {
    if (targets[t] < 0) continue;
    double sum = 0;
    for (std::size_t j = 0; j < vocabulary; ++j) {
      double logit = 0;
      for (std::size_t k = 0; k < width; ++k) logit += h[t * width + k] * w[j * width + k];
      sum += share[j] = std::exp(logit);
    }
    std::fill(dh.begin(), dh.end(), 0.0);
    for (std::size_t j = 0; j < vocabulary; ++j) {
      const double wanted = j == static_cast<std::size_t>(targets[t]) ? 1 : 0;
      for (std::size_t k = 0; k < width; ++k) {
        const double more = 1 + 2 * z_coeff * std::log(sum);
        const double term = (share[j] / sum * more - wanted) * w[j * width + k];
        terms += term * term;
        dh[k] += term;
      }
    }
    for (const double value : dh) sums += value * value;
  }
  return sums > 0 ? std::max(1.0, std::sqrt(terms / sums)) : 1;
}

constexpr double kZCoeff = 0.05;

// The operator with random h and w, some targets and, for evaluation, hits in place of gradients.
struct Head {
  Head(Random& random, Dtype storage, const Sizes& s, bool gradients, double z_coeff = 0)
      : op{s.tokens, s.vocabulary, s.width, storage, gradients, s.accumulate, !gradients, z_coeff},
        o(make_arrays(op, random)) {
    const double scale = 1 / std::sqrt(static_cast<double>(s.width));
    set(o.w, random.normal(s.vocabulary * s.width, scale));
    std::vector<std::int32_t> targets;
    for (std::int64_t t = 0; t < s.tokens; ++t)
      targets.push_back(
          static_cast<std::int32_t>(t % 5 == 3 ? -1 : random.integer(0, s.vocabulary - 1)));
    o.targets = int32_array(targets);
    if (gradients) set(o.scale, {0.37});
    cancellation = test::cancellation(s, o.h.values(), o.w.values(), targets, z_coeff);
  }

  double tolerance(std::string_view output) const {
    const Dtype sums = execution::accumulation(op.storage);
    const auto vocabulary = static_cast<double>(op.vocabulary);
    const double terms = vocabulary + static_cast<double>(op.width + op.tokens);
    // A loss is a difference of two numbers near log V + 3 sqrt(D), of a size near 1 at least.
    const double size = std::log(vocabulary) + 3 * std::sqrt(static_cast<double>(op.width));
    if (output == "hits") return 1e-6;
    if (output == "losses") return op.vocabulary == 1 ? 0 : size * test::tolerance(sums, terms);
    // The square of a sum that errs by so much, and is near log V.
    if (output == "z_losses") return 2 * std::max(size, 1.0) * test::tolerance(sums, terms);
    if (op.vocabulary == 1) return HUGE_VAL;  // of gradients, which are 0
    // The gradient of the logits is rounded to storage before its two products.
    const double rounding = execution::epsilon(op.storage);
    return output == "dh" ? test::tolerance(op.storage, terms, 16) + cancellation * rounding
                          : test::tolerance(sums, terms, 16) + rounding;
  }

  LinearCrossEntropy op;
  Arrays<LinearCrossEntropy> o;
  double cancellation;
};

TEST(cross_entropy_gpu, matches_fp64) {
  STOWAGE_NEED_GPU();
  Random random;
  for (const Sizes& s : kSizes)
    for (const Dtype storage : kDeviceTypes)
      for (const bool gradients : {false, true})
        for (const double z_coeff : {0.0, kZCoeff}) {
          SCOPED_TRACE(testing::Message() << s.tokens << " x " << s.vocabulary << " x " << s.width
                                          << ", z-loss " << z_coeff);
          const Head head(random, storage, s, gradients, z_coeff);
          check_on_gpu(
              head.op, head.o, [&](std::string_view output) { return head.tolerance(output); },
              s.tokens == 300 ? 100 : 2);
        }
}

TEST(cross_entropy_gpu, loss_sum_matches_fp64) {
  STOWAGE_NEED_GPU();
  Random random;
  for (const Sizes& s : kSizes)
    for (const Dtype storage : kDeviceTypes) {
      const LossSum op{s.tokens, storage, s.accumulate};
      const Arrays<LossSum> o = make_arrays(op, random);
      set(o.losses, random.uniform(s.tokens, 0, 3));
      set(o.targets, random.uniform(s.tokens, -2, 2));  // cut to -1, 0 and 1
      const double bound = tolerance(Dtype::fp32, static_cast<double>(s.tokens));
      check_on_gpu(op, o, [&](std::string_view) { return bound; });
    }
}

TEST(cross_entropy_gpu, source_losses_match_fp64) {
  STOWAGE_NEED_GPU();
  Random random;
  for (const Sizes& s : kSizes)
    for (const std::int64_t sources : {1, 5}) {
      const SourceLosses op{s.tokens, sources, Dtype::bf16, s.accumulate};
      const Arrays<SourceLosses> o = make_arrays(op, random);
      set(o.losses, random.uniform(s.tokens, 0, 3));
      set(o.of, random.uniform(s.tokens, -2, static_cast<double>(sources)));  // cut to whole ones
      const double bound = tolerance(Dtype::fp32, static_cast<double>(s.tokens));
      check_on_gpu(op, o, [&](std::string_view) { return bound; });
    }
}

// The second of two ranks that share the vocabulary, and what both have told of their rows.
struct Shard {
  Shard(Random& random, Dtype storage, const Sizes& s, bool gradients, double z_coeff)
      : logits{s.tokens, s.vocabulary, s.width, s.vocabulary, storage},
        op{s.tokens, s.vocabulary, s.width,      s.vocabulary, 2,
           storage,  gradients,    s.accumulate, !gradients,   z_coeff},
        made(make_arrays(logits, random)),
        o(make_arrays(op, random)) {
    set(made.w, random.normal(s.vocabulary * s.width, 1 / std::sqrt(static_cast<double>(s.width))));
    o.h = made.h, o.w = made.w;
    std::vector<std::int32_t> targets;
    Values stats;  // maximum, sum, logit of the target: the largest one or not
    for (std::int64_t t = 0; t < s.tokens; ++t) {
      targets.push_back(
          static_cast<std::int32_t>(t % 5 == 3 ? -1 : random.integer(0, 2 * s.vocabulary - 1)));
      for (const double one : {4.0, random.uniform(1, 1, 9)[0], t % 2 == 0 ? 4.0 : 0.5})
        stats.push_back(one);
    }
    for (std::int64_t t = 0; t < s.tokens; ++t)
      for (const double one : {3.0, random.uniform(1, 1, 9)[0], 0.0}) stats.push_back(one);
    made.targets = o.targets = int32_array(targets);
    set(o.stats, stats);
    if (gradients) set(o.scale, {0.37});
  }

  double tolerance(std::string_view output) const {
    const Dtype sums = execution::accumulation(op.storage);
    const double terms = static_cast<double>(op.vocabulary + op.width + op.rows);
    if (output == "hits") return 1e-6;
    if (output == "losses" || output == "z_losses" || output == "stats")
      return 4 * test::tolerance(sums, terms, 16);
    if (output == "logits") return test::tolerance(sums, terms, 16);
    // The gradient of the logits is rounded; of random weights its terms do not cancel by norm.
    return test::tolerance(output == "dh" ? op.storage : sums, terms, 16) +
           2 * execution::epsilon(op.storage);
  }

  ShardedLogits logits;
  ShardedCrossEntropy op;
  Arrays<ShardedLogits> made;
  Arrays<ShardedCrossEntropy> o;
};

// Logits become their gradients in place: in bf16 these are half of a row, which nobody else reads.
struct ShardRun : OperatorRun<ShardedCrossEntropy> {
  std::vector<Output> outputs() const {
    std::vector<Output> all = OperatorRun<ShardedCrossEntropy>::outputs();
    std::erase_if(all, [](const Output& one) { return std::string_view(one.name) == "logits"; });
    return all;
  }
};

TEST(cross_entropy_gpu, parts_of_the_vocabulary_match_fp64) {
  STOWAGE_NEED_GPU();
  Random random;
  for (const Sizes& s : kSizes) {
    if (s.tokens == 0 || s.vocabulary < 8) continue;
    for (const Dtype storage : kDeviceTypes)
      for (const bool gradients : {false, true}) {
        SCOPED_TRACE(testing::Message() << s.tokens << " x " << s.vocabulary << " x " << s.width);
        const Shard shard(random, storage, s, gradients, s.tokens == 70 ? 0 : kZCoeff);
        const auto tolerance = [&](std::string_view name) { return shard.tolerance(name); };
        check_on_gpu(shard.logits, shard.made, tolerance);
        ShardedCrossEntropy wide = shard.op;
        wide.storage = Dtype::fp64;
        check_on_gpu(ShardRun{{shard.op, shard.o, tolerance}},
                     ShardRun{{wide, in_type_of(wide, shard.o), tolerance}});
      }
  }
}

// The pass over logits without the products around it, which a race checker does not understand.
class SoftmaxAlone {
 public:
  SoftmaxAlone(Dtype storage, std::int64_t vocabulary, const Values& logits,
               const std::vector<std::int32_t>& targets)
      : rows_(static_cast<std::int64_t>(targets.size())),
        vocabulary_(vocabulary),
        logits_(storage, {rows_, vocabulary}, logits),
        targets_(int32_array(targets)),
        scale_(storage, {1}, Values{0.37}),
        losses_(storage, {rows_}) {}

  template <class At>
  void enqueue(Queue& q, At& at) const {
    const auto logits = Address(at(logits_)), losses = Address(at(losses_));
    const auto scale = Address(at(scale_)), targets = Address(at(targets_));
    kernels::run(
        q, "softmax", logits_.dtype(),
        [rows = rows_, vocabulary = vocabulary_, logits, losses, scale, targets]<class S>() {
          using A = execution::Accumulation<S>;
          for (std::int64_t t = 0; t < rows; ++t) {
            A* row = logits.as<A>() + t * vocabulary;
            const std::int32_t target = targets.as<const std::int32_t>()[t];
            A sum = 0;
            for (std::int64_t j = 0; j < vocabulary; ++j) sum += std::exp(row[j]);
            losses.as<A>()[t] = target < 0 ? 0 : std::log(sum) - row[target];
            for (std::int64_t j = 0; j < vocabulary; ++j)
              row[j] =
                  target < 0 ? 0 : (std::exp(row[j]) / sum - (j == target)) * *scale.as<const A>();
          }
        },
        [&]<class S>(void* stream) {
          return cross_entropy::launch<float>({.rows = rows_,
                                               .vocabulary = vocabulary_,
                                               .logits = logits.as<float>(),
                                               .targets = targets.as<const std::int32_t>(),
                                               .losses = losses.as<float>(),
                                               .scale = scale.as<const float>()},
                                              stream);
        });
  }
  std::vector<Output> outputs() const {
    const double bound = tolerance(Dtype::fp32, static_cast<double>(vocabulary_), 16);
    return {{"losses", losses_, bound}, {"gradients", logits_, bound}};
  }

 private:
  std::int64_t rows_, vocabulary_;
  Array logits_, targets_, scale_, losses_;
};

TEST(cross_entropy_gpu, softmax_alone) {
  STOWAGE_NEED_GPU();
  Random random;
  // Odd, a block, clusters of two to eight blocks, and one block that reads its row twice.
  for (const std::int64_t vocabulary : {301, 1024, 16384, 32000, 65536, 131072, 140000}) {
    SCOPED_TRACE(vocabulary);
    const Values logits = random.normal(4 * vocabulary);
    const std::vector<std::int32_t> targets = {0, -1, 300, static_cast<int>(vocabulary) - 1};
    check_on_gpu(SoftmaxAlone(Dtype::fp32, vocabulary, logits, targets),
                 SoftmaxAlone(Dtype::fp64, vocabulary, logits, targets));
  }
}

TEST(cross_entropy_gpu, large_and_undefined_logits) {
  STOWAGE_NEED_GPU();
  Random random;
  Head head(random, Dtype::fp32, {2, 5, 1, false}, true);
  set(head.o.h, {1, std::nan("")});
  set(head.o.w, {3e4, -3e4, 0, 1, 2});
  head.o.targets = int32_array({1, 0});
  const Values losses = on_gpu(head.op, head.o, {head.o.losses})[0].values();
  EXPECT_EQ(losses[0], 6e4);
  EXPECT_TRUE(std::isnan(losses[1])) << "a NaN must reach the loss";
}

TEST(cross_entropy_gpu, chunks_are_nearly_equal) {
  EXPECT_EQ(cross_entropy_device_chunk(16384, 65536), 2048);
  EXPECT_EQ(cross_entropy_device_chunk(65536, 50304), 2560 - 2560 % 128);
  EXPECT_EQ(cross_entropy_device_chunk(16384, 131072), 1024);
  EXPECT_EQ(cross_entropy_device_chunk(5, 131072), 5);
  EXPECT_EQ(cross_entropy_device_chunk(4500, 40), 2304);
  EXPECT_EQ(cross_entropy_device_chunk(0, 40), 0);
}

}  // namespace
}  // namespace stowage::kernels::test
