#include "drivers/bench_kernels/attention_reference.hpp"

#include <algorithm>
#include <cmath>

namespace stowage::drivers::bench {
namespace {

constexpr std::int64_t kSampledRows = 9;  // of each head; at uneven places, so of all kinds of tile
constexpr std::int64_t kSampledKeys = 7;

double dot(const double* a, const double* b, std::int64_t n) {
  double sum = 0;
  for (std::int64_t i = 0; i < n; ++i) sum += a[i] * b[i];
  return sum;
}

void add(std::vector<double>& to, double factor, const double* from) {
  for (std::size_t i = 0; i < to.size(); ++i) to[i] += factor * from[i];
}

}  // namespace

std::vector<AttentionSample> AttentionReference::samples() const {
  std::vector<AttentionSample> made;
  for (std::int64_t head = 0; head < heads; ++head)
    for (std::int64_t i = 0; i < kSampledRows; ++i)
      made.push_back({head, i * (length - 1) / (kSampledRows - 1)});
  return made;
}

std::vector<std::int64_t> AttentionReference::sampled_keys() const {
  std::vector<std::int64_t> made;
  for (std::int64_t i = 0; i < kSampledKeys; ++i)
    made.push_back(i * (length - 1) / (kSampledKeys - 1));
  return made;
}

const double* AttentionReference::query(const std::vector<double>& values,
                                        const AttentionSample& sample) const {
  return values.data() + (sample.row * heads + sample.head) * head_dim;
}

double AttentionReference::score(const AttentionSample& sample, std::int64_t key) const {
  return dot(query(q, sample), k.data() + key * head_dim, head_dim) /
         std::sqrt(static_cast<double>(head_dim));
}

double AttentionReference::delta(const AttentionSample& sample) const {
  return dot(query(o, sample), query(d_o, sample), head_dim);
}

AttentionRow AttentionReference::row(const AttentionSample& sample) const {
  std::vector<double> scores;
  for (std::int64_t key = 0; key < keys(sample.row); ++key) scores.push_back(score(sample, key));
  const double largest = *std::max_element(scores.begin(), scores.end());
  double sum = 0;
  AttentionRow made{std::vector<double>(static_cast<std::size_t>(head_dim)), 0};
  for (std::size_t key = 0; key < scores.size(); ++key) {
    const double weight = std::exp(scores[key] - largest);
    sum += weight;
    add(made.o, weight, v.data() + static_cast<std::int64_t>(key) * head_dim);
  }
  for (double& value : made.o) value /= sum;
  made.lse = largest + std::log(sum);
  return made;
}

std::vector<double> AttentionReference::dq(const AttentionSample& sample) const {
  std::vector<double> made(static_cast<std::size_t>(head_dim));
  const double log_sum = lse[sample.head * length + sample.row];
  const double offset = delta(sample);
  const double scale = 1 / std::sqrt(static_cast<double>(head_dim));
  for (std::int64_t key = 0; key < keys(sample.row); ++key) {
    const double p = std::exp(score(sample, key) - log_sum);
    const double dp = dot(query(d_o, sample), v.data() + key * head_dim, head_dim);
    add(made, scale * p * (dp - offset), k.data() + key * head_dim);
  }
  return made;
}

AttentionKeyGradient AttentionReference::dk_dv(std::int64_t key) const {
  AttentionKeyGradient made{std::vector<double>(static_cast<std::size_t>(head_dim)),
                            std::vector<double>(static_cast<std::size_t>(head_dim))};
  const double scale = 1 / std::sqrt(static_cast<double>(head_dim));
  for (std::int64_t head = 0; head < heads; ++head) {
    for (std::int64_t row = causal ? key : 0; row < length; ++row) {
      const AttentionSample sample{head, row};
      const double p = std::exp(score(sample, key) - lse[head * length + row]);
      const double dp = dot(query(d_o, sample), v.data() + key * head_dim, head_dim);
      add(made.dv, p, query(d_o, sample));
      add(made.dk, scale * p * (dp - delta(sample)), query(q, sample));
    }
  }
  return made;
}

}  // namespace stowage::drivers::bench
