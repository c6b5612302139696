#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "ctest/kernels/operator_arrays.hpp"
#include "ctest/kernels/packed.hpp"
#include "kernels/cross_entropy/linear_cross_entropy.hpp"
#include "kernels/cross_entropy/loss_sum.hpp"
#include "kernels/cross_entropy/sharded_cross_entropy.hpp"
#include "kernels/cross_entropy/source_losses.hpp"

namespace stowage::kernels::test {
namespace {

struct Case {
  std::int64_t tokens, vocabulary, width;
};

// The last one has more rows than one chunk.
constexpr Case kCases[] = {{1, 1, 1}, {1, 7, 3}, {13, 21, 5}, {70, 300, 33}, {1100, 9, 4}};
constexpr double kScale = 0.37;
constexpr double kZCoeff = 0.05;

struct Inputs {
  Inputs(Random& random, const Case& c, Dtype storage)
      : h(rounded(random.normal(c.tokens * c.width), storage)),
        w(rounded(random.normal(c.vocabulary * c.width), storage)) {
    for (std::int64_t t = 0; t < c.tokens; ++t)
      targets.push_back(
          static_cast<std::int32_t>(t % 5 == 3 ? -1 : random.integer(0, c.vocabulary - 1)));
  }
  Values h, w;
  std::vector<std::int32_t> targets;
};

Values plain_losses(const Case& c, const Inputs& in) {
  Values losses(at(c.tokens), 0);
  for (std::int64_t t = 0; t < c.tokens; ++t) {
    if (in.targets[at(t)] < 0) continue;
    double sum = 0, chosen = 0;
    for (std::int64_t j = 0; j < c.vocabulary; ++j) {
      double logit = 0;
      for (std::int64_t k = 0; k < c.width; ++k)
        logit += in.h[at(t * c.width + k)] * in.w[at(j * c.width + k)];
      sum += std::exp(logit);
      if (j == in.targets[at(t)]) chosen = logit;
    }
    losses[at(t)] = std::log(sum) - chosen;
  }
  return losses;
}

// z_coeff logsumexp^2 of each counted token.
Values plain_z_losses(const Case& c, const Inputs& in) {
  Values all = plain_losses(c, in);
  for (std::int64_t t = 0; t < c.tokens; ++t) {
    if (in.targets[at(t)] < 0) continue;
    double z = all[at(t)];
    for (std::int64_t k = 0; k < c.width; ++k)
      z += in.h[at(t * c.width + k)] * in.w[at(in.targets[at(t)] * c.width + k)];
    all[at(t)] = kZCoeff * z * z;
  }
  return all;
}

struct Results {
  Values losses, dh, dw, z_losses;
};

enum class Accumulate { check, skip };

// Runs twice, storing and then adding: the second run must double dw and leave dh.
Results run(const Case& c, Dtype storage, const Inputs& in, Accumulate adding = Accumulate::check,
            double z_coeff = 0) {
  const Dtype sums = execution::accumulation(storage);
  const Array h(storage, {c.tokens, c.width}, in.h), w(storage, {c.vocabulary, c.width}, in.w);
  const Array targets = int32_array(in.targets), scale(sums, {1}, Values{kScale});
  const Array losses(sums, {c.tokens}), dh(storage, {c.tokens, c.width});
  const Array dw(sums, {c.vocabulary, c.width});
  const Array z_losses = z_coeff > 0 ? Array(sums, {c.tokens}) : Array{};
  const auto once = [&](bool accumulate) {
    const LinearCrossEntropy op{c.tokens, c.vocabulary, c.width, storage,
                                true,     accumulate,   false,   z_coeff};
    test::run(op, {.h = h,
                   .w = w,
                   .targets = targets,
                   .scale = scale,
                   .losses = losses,
                   .dh = dh,
                   .dw = dw,
                   .workspace = workspace(op.workspace_bytes()),
                   .hits = {},
                   .z_losses = z_losses});
    return Results{losses.values(), dh.values(), dw.values(),
                   z_coeff > 0 ? z_losses.values() : Values{}};
  };
  const Results stored = once(false);
  if (adding == Accumulate::skip) return stored;
  const Results added = once(true);
  EXPECT_EQ(added.dh, stored.dh);
  EXPECT_EQ(added.losses, stored.losses);
  EXPECT_LT(relative_error(added.dw, doubled(stored.dw)),
            tolerance(sums, static_cast<double>(c.tokens)));
  return stored;
}

// Losses and hits without gradients.
Arrays<LinearCrossEntropy> evaluated(const Case& c, Dtype storage, const Inputs& in) {
  const LinearCrossEntropy op{c.tokens, c.vocabulary, c.width, storage, false, false, true};
  const Dtype sums = execution::accumulation(storage);
  const Arrays<LinearCrossEntropy> o{.h = Array(storage, {c.tokens, c.width}, in.h),
                                     .w = Array(storage, {c.vocabulary, c.width}, in.w),
                                     .targets = int32_array(in.targets),
                                     .scale = {},
                                     .losses = Array(sums, {c.tokens}),
                                     .dh = {},
                                     .dw = {},
                                     .workspace = workspace(op.workspace_bytes()),
                                     .hits = Array(sums, {c.tokens}),
                                     .z_losses = {}};
  test::run(op, o);
  return o;
}

// Losses are a difference of logsumexp and the chosen logit: their error is that of the logits,
// which are near 3 sqrt(D) at most.
double loss_tolerance(const Case& c, Dtype storage) {
  const auto vocabulary = static_cast<double>(c.vocabulary), width = static_cast<double>(c.width);
  const double size = std::log(vocabulary) + 3 * std::sqrt(width);
  return size * tolerance(execution::accumulation(storage), vocabulary + width);
}

TEST(cross_entropy, losses_are_the_formula) {
  Random random;
  for (const Case& c : kCases)
    for (const Dtype storage : kFloatingTypes) {
      const Inputs in(random, c, storage);
      const Values expected = plain_losses(c, in);
      const Results results = run(c, storage, in);
      if (c.vocabulary == 1)
        EXPECT_EQ(results.losses, Values(at(c.tokens), 0));
      else
        EXPECT_LT(rms_difference(results.losses, expected), loss_tolerance(c, storage));
    }
}

TEST(cross_entropy, evaluation_gives_the_same_losses) {
  Random random;
  for (const Case& c : kCases) {
    const Inputs in(random, c, Dtype::bf16);
    EXPECT_EQ(evaluated(c, Dtype::bf16, in).losses.values(), run(c, Dtype::bf16, in).losses);
  }
}

TEST(cross_entropy, hits_are_targets_with_the_largest_logit) {
  Random random;
  for (const Case& c : kCases)
    for (const bool likely : {false, true}) {
      Inputs in(random, c, Dtype::fp64);
      Values expected(at(c.tokens), 0);
      for (std::int64_t t = 0; t < c.tokens; ++t) {
        const auto logit = [&](std::int64_t v) {
          double sum = 0;
          for (std::int64_t d = 0; d < c.width; ++d)
            sum += in.h[at(t * c.width + d)] * in.w[at(v * c.width + d)];
          return sum;
        };
        std::int64_t best = 0;
        for (std::int64_t v = 1; v < c.vocabulary; ++v)
          if (logit(v) > logit(best)) best = v;
        std::int32_t& target = in.targets[at(t)];
        if (likely && target >= 0 && t % 3 != 0) target = static_cast<std::int32_t>(best);
        expected[at(t)] = target == best ? 1 : 0;
      }
      EXPECT_EQ(evaluated(c, Dtype::fp64, in).hits.values(), expected);
    }
}

TEST(cross_entropy, gradients_by_finite_differences) {
  Random random;
  for (const double z_coeff : {0.0, kZCoeff})
    for (const Case& c : kCases) {
      if (c.tokens * c.vocabulary > 1000 || (c.vocabulary == 1 && z_coeff == 0)) continue;
      const Inputs in(random, c, Dtype::fp64);
      const Results results = run(c, Dtype::fp64, in, Accumulate::check, z_coeff);
      const auto numeric = [&](Values Inputs::*input) {
        return numeric_gradient(in.*input, [&](const Values& changed) {
          Inputs other = in;
          other.*input = changed;
          Values losses = plain_losses(c, other);
          if (z_coeff > 0) {
            const Values z_losses = plain_z_losses(c, other);
            losses.insert(losses.end(), z_losses.begin(), z_losses.end());
          }
          return kScale * std::accumulate(losses.begin(), losses.end(), 0.0);
        });
      };
      EXPECT_LT(relative_error(results.dh, numeric(&Inputs::h)), 1e-8);
      EXPECT_LT(relative_error(results.dw, numeric(&Inputs::w)), 1e-8);
    }
}

TEST(cross_entropy, z_losses_are_the_formula_beside_the_same_losses) {
  Random random;
  for (const Case& c : kCases)
    for (const Dtype storage : kFloatingTypes) {
      const Inputs in(random, c, storage);
      const Results plain = run(c, storage, in),
                    results = run(c, storage, in, Accumulate::check, kZCoeff);
      EXPECT_EQ(results.losses, plain.losses);
      const Values expected = plain_z_losses(c, in);
      // d(c z^2) = 2 c z dz, where z errs as a loss does.
      const double z = std::sqrt(std::ranges::max(expected) / kZCoeff);
      EXPECT_LT(
          rms_difference(results.z_losses, expected),
          2 * kZCoeff * z * loss_tolerance(c, storage) +
              execution::epsilon(storage == Dtype::fp64 ? storage : Dtype::fp32) * kZCoeff * z * z);
      for (std::int64_t t = 3; t < c.tokens; t += 5) EXPECT_EQ(results.z_losses[at(t)], 0);
    }
}

// More rows than a chunk: dw has a share of each chunk, so it is compared with sums of parts.
TEST(cross_entropy, chunks_add_up) {
  Random random;
  const Case c = kCases[4];
  const Inputs in(random, c, Dtype::fp64);
  const Results whole = run(c, Dtype::fp64, in);
  Values dw(in.w.size(), 0);
  constexpr std::int64_t kPart = 100;
  for (std::int64_t begin = 0; begin < c.tokens; begin += kPart) {
    Inputs part = in;
    part.h = Values(in.h.begin() + begin * c.width, in.h.begin() + (begin + kPart) * c.width);
    part.targets = {in.targets.begin() + begin, in.targets.begin() + begin + kPart};
    const Results results = run({kPart, c.vocabulary, c.width}, Dtype::fp64, part);
    for (std::size_t i = 0; i < dw.size(); ++i) dw[i] += results.dw[i];
  }
  EXPECT_LT(relative_error(whole.dw, dw), tolerance(Dtype::fp64, static_cast<double>(c.tokens)));
}

// The logits of a token in fp64.
Values logits_of(const Case& c, const Inputs& in, std::int64_t t) {
  Values logits(at(c.vocabulary), 0);
  for (std::int64_t v = 0; v < c.vocabulary; ++v)
    for (std::int64_t d = 0; d < c.width; ++d)
      logits[at(v)] += in.h[at(t * c.width + d)] * in.w[at(v * c.width + d)];
  return logits;
}

// Softmax is subtracted from targets, so a nearly certain one leaves a small difference of large
// numbers. Here none is: a target with more than half of the probability gives way to the least
// likely token.
TEST(cross_entropy, gradients_in_storage_types) {
  Random random;
  for (const Case& c : kCases)
    for (const Dtype storage : {Dtype::fp32, Dtype::bf16}) {
      if (c.vocabulary == 1) continue;
      Inputs in(random, c, storage);
      const Values losses = plain_losses(c, in);
      for (std::int64_t t = 0; t < c.tokens; ++t)
        if (const Values logits = logits_of(c, in, t);
            in.targets[at(t)] >= 0 && losses[at(t)] < std::log(2.0))
          in.targets[at(t)] =
              static_cast<std::int32_t>(std::ranges::min_element(logits) - logits.begin());
      const Results expected = run(c, Dtype::fp64, in), actual = run(c, storage, in);
      const double terms = static_cast<double>(c.tokens + c.vocabulary + c.width);
      EXPECT_LT(relative_error(actual.dh, expected.dh), tolerance(storage, terms, 16));
      EXPECT_LT(relative_error(actual.dw, expected.dw), tolerance(Dtype::fp32, terms, 16));
    }
}

// And where all targets are the likeliest tokens, the error is that of what cancels.
TEST(cross_entropy, gradients_of_likely_targets_err_by_what_cancels) {
  Random random;
  for (const Case& c : kCases)
    for (const Dtype storage : {Dtype::fp32, Dtype::bf16}) {
      Inputs in(random, c, storage);
      Values part(in.h.size(), 0);  // of dh, that targets have
      for (std::int64_t t = 0; t < c.tokens; ++t) {
        if (in.targets[at(t)] < 0) continue;
        const Values logits = logits_of(c, in, t);
        const std::int64_t target = std::ranges::max_element(logits) - logits.begin();
        in.targets[at(t)] = static_cast<std::int32_t>(target);
        for (std::int64_t d = 0; d < c.width; ++d)
          part[at(t * c.width + d)] = kScale * in.w[at(target * c.width + d)];
      }
      const Results expected = run(c, Dtype::fp64, in), actual = run(c, storage, in);
      Values difference = actual.dh;
      for (std::size_t i = 0; i < difference.size(); ++i) difference[i] -= expected.dh[i];
      const double terms = static_cast<double>(c.tokens + c.vocabulary + c.width);
      EXPECT_LT(std::sqrt(dot(difference, difference) / dot(part, part)),
                tolerance(storage, terms, 16));
    }
}

TEST(cross_entropy, large_and_undefined_logits) {
  Random random;
  const Case c{2, 5, 1};
  Inputs in(random, c, Dtype::fp32);
  in.h = {1, std::nan("")};
  in.w = {3e4, -3e4, 0, 1, 2};
  in.targets = {1, 0};
  const Results results = run(c, Dtype::fp32, in, Accumulate::skip);
  EXPECT_EQ(results.losses[0], 6e4);
  EXPECT_TRUE(std::isnan(results.losses[1])) << "a NaN must reach the loss";
}

// A GPU reads each logit and writes its gradient between the products, of four kernels a chunk.
TEST(cross_entropy, cost_has_the_logits_apart) {
  const std::int64_t n = 3000, vocabulary = 65536, width = 768;
  const LinearCrossEntropy op{n, vocabulary, width, Dtype::bf16, true, false};
  const execution::Cost both = op.cost();
  EXPECT_EQ(both.apart_bytes, (4.0 + 2) * n * vocabulary);
  EXPECT_EQ(both.more_kernels, 2 * 4 - 1);
  LinearCrossEntropy alone = op;
  alone.gradients = false;
  const execution::Cost loss = alone.cost();
  EXPECT_EQ(loss.apart_bytes, 4.0 * n * vocabulary);
  EXPECT_EQ(loss.more_kernels, 2 * 2 - 1);
}

// Ranks that share the vocabulary: the same losses, hits, z-losses and gradients of w, and summands
// of dh.
void expect_parts_make_the_whole(double z_coeff) {
  Random random;
  for (const Case& c : {Case{13, 21, 5}, Case{70, 300, 33}, Case{5, 6, 1}})
    for (const Dtype storage : kFloatingTypes) {
      const std::int64_t ranks = 3, part = c.vocabulary / ranks;
      const Inputs in(random, c, storage);
      const Dtype sums = execution::accumulation(storage);
      const Array h(storage, {c.tokens, c.width}, in.h), targets = int32_array(in.targets);
      const Array scale(sums, {1}, Values{kScale}), whole_stats(sums, {ranks * c.tokens, 3});
      std::vector<Array> ws, logits;
      Values stats;
      for (std::int64_t r = 0; r < ranks; ++r) {
        const auto first = in.w.begin() + r * part * c.width;
        ws.emplace_back(storage, std::vector<std::int64_t>{part, c.width},
                        Values(first, first + part * c.width));
        const ShardedLogits op{c.tokens, part, c.width, r * part, storage};
        Arrays<ShardedLogits> o = make_arrays(op, random);
        o.h = h, o.w = ws.back(), o.targets = targets;
        test::run(op, o);
        logits.push_back(o.logits);
        const Values own = o.stats.values();
        stats.insert(stats.end(), own.begin(), own.end());
      }
      set(whole_stats, stats);
      const Results expected = run(c, storage, in, Accumulate::check, z_coeff);
      const Values hits = evaluated(c, storage, in).hits.values();
      Results found{{}, Values(in.h.size(), 0), {}, {}};
      double summands = 0;  // sizes of the ranks' dh, each of which is rounded
      for (std::int64_t r = 0; r < ranks; ++r) {
        const ShardedCrossEntropy op{c.tokens, part, c.width, r * part, ranks,
                                     storage,  true, false,   true,     z_coeff};
        Arrays<ShardedCrossEntropy> o = make_arrays(op, random);
        o.h = h, o.w = ws[at(r)], o.targets = targets, o.stats = whole_stats;
        o.logits = logits[at(r)], o.scale = scale;
        test::run(op, o);
        if (r > 0) {
          EXPECT_EQ(o.losses.values(), found.losses) << "ranks have other losses";
        }
        found.losses = o.losses.values();
        if (z_coeff > 0) {
          found.z_losses = o.z_losses.values();
          const double size = std::sqrt(dot(expected.z_losses, expected.z_losses));
          EXPECT_LT(rms_difference(found.z_losses, expected.z_losses),
                    loss_tolerance(c, storage) * size);
        }
        EXPECT_EQ(o.hits.values(), hits);
        const Values dh = o.dh.values(), dw = o.dw.values();
        for (std::size_t i = 0; i < dh.size(); ++i) found.dh[i] += dh[i];
        summands += std::sqrt(dot(dh, dh));
        found.dw.insert(found.dw.end(), dw.begin(), dw.end());
      }
      const double terms = static_cast<double>(c.tokens + c.vocabulary + c.width);
      EXPECT_LT(rms_difference(found.losses, plain_losses(c, in)), loss_tolerance(c, storage));
      EXPECT_LT(relative_error(found.dw, expected.dw), tolerance(sums, terms, 16));
      summands /= std::sqrt(dot(expected.dh, expected.dh));
      EXPECT_LT(relative_error(found.dh, expected.dh),
                std::max(1.0, summands) * tolerance(storage, terms, 16));
    }
}

TEST(cross_entropy, parts_of_the_vocabulary_make_the_whole) { expect_parts_make_the_whole(0); }

TEST(cross_entropy, parts_of_the_vocabulary_have_the_z_loss_of_the_whole) {
  expect_parts_make_the_whole(kZCoeff);
}

TEST(cross_entropy, source_losses_add_up_each_source) {
  Random random;
  const std::int64_t n = 1000, sources = 3;
  for (const Dtype dtype : {Dtype::fp32, Dtype::fp64}) {
    const Values losses = rounded(random.uniform(n, 0, 3), dtype);
    std::vector<std::int32_t> of(at(n));
    Values expected(at(2 * sources), 0);
    for (std::int64_t t = 0; t < n; ++t) {
      of[at(t)] = static_cast<std::int32_t>(random.integer(-1, 1));  // none of the last source
      if (of[at(t)] < 0) continue;
      expected[at(2 * of[at(t)])] += losses[at(t)];
      ++expected[at(2 * of[at(t)] + 1)];
    }
    const Array sums(dtype, {2 * sources}), l(dtype, {n}, losses), o = int32_array(of);
    test::run(SourceLosses{n, sources, dtype, false}, {.losses = l, .of = o, .sums = sums});
    const Values once = sums.values();
    for (std::size_t i = 0; i < expected.size(); ++i)
      if (i % 2 == 0)
        EXPECT_NEAR(once[i], expected[i], expected[i] * tolerance(dtype, n));
      else
        EXPECT_EQ(once[i], expected[i]);
    test::run(SourceLosses{n, sources, dtype, true}, {.losses = l, .of = o, .sums = sums});
    EXPECT_EQ(sums.values(), doubled(once));
  }
}

TEST(cross_entropy, loss_sum_counts_targets) {
  Random random;
  for (const Dtype dtype : {Dtype::fp32, Dtype::fp64}) {
    const std::int64_t n = 1000;
    const Values losses = rounded(random.uniform(n, 0, 3), dtype);
    std::vector<std::int32_t> targets(at(n));
    double sum = 0, count = 0;
    for (std::int64_t t = 0; t < n; ++t) {
      targets[at(t)] = static_cast<std::int32_t>(random.integer(-1, 1));
      if (targets[at(t)] < 0) continue;
      sum += losses[at(t)];
      ++count;
    }
    const Array sums(dtype, {2}), l(dtype, {n}, losses), t = int32_array(targets);
    test::run(LossSum{n, dtype, false}, {.losses = l, .targets = t, .sums = sums});
    EXPECT_NEAR(sums.values()[0], sum, sum * tolerance(dtype, n));
    EXPECT_EQ(sums.values()[1], count);
    const Values once = sums.values();
    test::run(LossSum{n, dtype, true}, {.losses = l, .targets = t, .sums = sums});
    EXPECT_EQ(sums.values(), doubled(once));
  }
}

}  // namespace
}  // namespace stowage::kernels::test
