#pragma once

#include <cstdint>
#include <vector>

namespace stowage::drivers::bench {

/// A query row of one head.
struct AttentionSample {
  std::int64_t head;
  std::int64_t row;
};

/// What attention gives for it.
struct AttentionRow {
  std::vector<double> o;  ///< (P)
  double lse;
};

struct AttentionKeyGradient {
  std::vector<double> dk, dv;  ///< (P)
};

/// Attention of the query heads that share one kv head, in one document, in fp64 and row by row, as
/// defined: only what is sampled is computed, so long documents are no matter. Scale 1 / sqrt(P).
struct AttentionReference {
  std::int64_t length;    ///< T
  std::int64_t heads;     ///< query heads of the group
  std::int64_t head_dim;  ///< P
  bool causal;
  std::vector<double> q = {};    ///< (T, heads, P)
  std::vector<double> k = {};    ///< (T, P)
  std::vector<double> v = {};    ///< (T, P)
  std::vector<double> o = {};    ///< (T, heads, P), an input of the backward, as d_o
  std::vector<double> d_o = {};  ///< (T, heads, P)
  std::vector<double> lse = {};  ///< (heads, T), an input of the backward

  /// Rows of all parts of the document, the first and the last with them.
  std::vector<AttentionSample> samples() const;
  std::vector<std::int64_t> sampled_keys() const;

  AttentionRow row(const AttentionSample& sample) const;
  std::vector<double> dq(const AttentionSample& sample) const;
  /// Summed over the heads.
  AttentionKeyGradient dk_dv(std::int64_t key) const;

 private:
  const double* query(const std::vector<double>& values, const AttentionSample& sample) const;
  double score(const AttentionSample& sample, std::int64_t key) const;
  double delta(const AttentionSample& sample) const;
  std::int64_t keys(std::int64_t row) const { return causal ? row + 1 : length; }
};

}  // namespace stowage::drivers::bench
