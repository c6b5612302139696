#pragma once

#include <string>
#include <vector>

#include "drivers/bench_kernels/attention_reference.hpp"
#include "drivers/bench_kernels/case.hpp"
#include "kernels/attention/attention.hpp"
#include "kernels/attention/attention_cuda.hpp"

namespace stowage::drivers::bench {

/// Lengths of documents as a packed batch of 65536 tokens has them: 161 between 8 and 2701.
std::vector<std::int64_t> packed_document_lengths();

/// What both directions of attention share: q, k and v as columns of one projection, as in a layer,
/// and the longest document as the one that is compared with the reference.
class AttentionCase : public Case {
 protected:
  /// @param lengths of the documents; the kernels learn them on the device
  AttentionCase(run::Gpu& gpu, const Shape& shape, std::int64_t seed,
                const std::vector<std::int64_t>& lengths);

  kernels::AttentionShape attention_shape() const;
  template <class Op>
  Op declared() const {
    Op op{attention_shape(), n_, n_, layout_.documents, execution::Dtype::bf16};
    op.scores = pairs_;
    return op;
  }

  const execution::Bf16* q() const { return qkv_.as<execution::Bf16>(); }
  const execution::Bf16* k() const { return q() + h_ * p_; }
  const execution::Bf16* v() const { return k() + k_ * p_; }

  std::int64_t group() const { return h_ / k_; }  ///< heads that share kv head 0
  /// Query head 0's group in the sampled document, in fp64.
  AttentionReference reference() const;
  /// Columns of the rows of the sampled document.
  std::vector<double> document_rows(const Operand& operand, std::int64_t first,
                                    std::int64_t count) const;
  /// A head's lse in the sampled document, from (H, n).
  std::vector<double> document_lse(const Operand& lse, std::int64_t head) const;

  /// How far `out` is from `ref`. Our error is kept, and a peer's agreement is followed by the
  /// ratio of ours to its own, which must not exceed 1.5.
  void compare(std::vector<Agreement>& into, const std::string& implementation,
               const std::string& what, const std::vector<double>& out,
               const std::vector<double>& ref, double tolerance, const std::string& over);

  std::int64_t n_, h_, k_, p_;
  bool causal_;
  std::int64_t width_;  ///< (H + 2 K) P
  std::int64_t pairs_ = 0;
  Operand qkv_, cu_seqlens_;
  kernels::AttentionLayout layout_;

 private:
  std::int64_t sampled_first_ = 0;   ///< first row of the document that is compared
  std::int64_t sampled_length_ = 0;  ///< and its length
  std::vector<std::pair<std::string, double>> our_errors_;
};

}  // namespace stowage::drivers::bench
