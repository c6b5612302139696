#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "kernels/attention/attention.hpp"
#include "layers/recording/config.hpp"
#include "layers/recording/recorder.hpp"
#include "parallel/groups/ranks.hpp"

namespace stowage::layers {

/// Columns of the queries, and of the keys or values, of a tensor rank.
inline std::int64_t query_width(const kernels::AttentionShape& s) { return s.heads * s.head_dim; }
inline std::int64_t kv_width(const kernels::AttentionShape& s) { return s.kv_heads * s.head_dim; }
inline std::int64_t qkv_width(const kernels::AttentionShape& s) {
  return query_width(s) + 2 * kv_width(s);
}

/// Columns of the rows [q | k | v] that one product makes.
struct QkvSection {
  std::string suffix;  ///< of names
  execution::Range outputs;
  std::int64_t heads = 0, kv_heads = 0;

  static QkvSection all(const kernels::AttentionShape& s) { return {"", {}, s.heads, s.kv_heads}; }
  static QkvSection queries(const kernels::AttentionShape& s) {
    return {"_q", {0, query_width(s)}, s.heads, 0};
  }
  static QkvSection keys(const kernels::AttentionShape& s) {
    return {"_kv", {query_width(s), qkv_width(s)}, 0, s.kv_heads};
  }
};

/// Attention between its two projections, of ranks that may share sequences. Each way of sharing is
/// a class: `OwnSequences` (one rank), `KeyExchange`, `HeadExchange`.
class ContextAttention {
 public:
  /// Makes columns of this rank's rows [q | k | v], as attention reads them.
  using Project = std::function<void(const QkvSection& section, Tensor to)>;
  /// What backward reads.
  struct Saved {
    Tensor queries;           ///< the first columns
    Tensor keys;              ///< and values: the last columns; may be the same tensor
    Tensor out;               ///< (tokens, H P)
    std::vector<Tensor> lse;  ///< of each call of the kernel
  };

  virtual ~ContextAttention() = default;
  virtual void forward(Recorder& recorder, const Project& project, Saved& kept) const = 0;
  /// @return gradient of the rows [q | k | v]
  virtual Tensor backward(Recorder& recorder, const Saved& kept, Tensor dout) const = 0;

 protected:
  /// Queries of one call of the kernel.
  struct Part {
    std::string name;  ///< behind those of ops and tensors
    std::int64_t first = 0, count = 0;
  };
  struct Gradients {
    Tensor dout, out, queries, kv;
    Tensor dq;   ///< whose first columns are those of q
    Tensor dkv;  ///< whose last columns are those of k and v; none: dq's last ones
  };

  /// @param rank the heads of a tensor rank; core: of them those that its kernel has
  ContextAttention(const kernels::AttentionShape& rank, const kernels::AttentionShape& core)
      : rank_(rank), core_(core) {}

  /// (query, key) pairs of a head in one call; the same on every rank, whose plans are alike.
  virtual std::int64_t pairs(const Recorder& recorder) const {
    return recorder.batch().attention_pairs;
  }
  Tensor saved_qkv(Recorder& recorder, const Project& project, const QkvSection& section) const;
  Tensor saved_out(Recorder& recorder) const {
    return recorder.saved("core_out", {recorder.tokens(), query_width(rank_)}, "attn_proj");
  }
  /// @param module none: it stays
  Tensor saved_lse(Recorder& recorder, const Part& part, std::string_view module) const {
    return recorder.saved("lse" + part.name, recorder.accumulation(), {core_.heads, part.count},
                          module);
  }
  Tensor forward_workspace(Recorder& recorder) const;
  /// Softmax and products.
  void core(Recorder& recorder, const Part& part, Tensor queries, Tensor kv, Tensor workspace,
            Tensor out, Tensor lse) const;
  void core_backward(Recorder& recorder, const Part& part, Tensor lse, const Gradients& of) const;
  /// Gradients of the rows [q | k | v] from their sums for k and v. @param dq none: dqkv has it
  void join(Recorder& recorder, Tensor dkv, Tensor dq, Tensor dqkv) const;

  kernels::AttentionShape rank_, core_;

 private:
  template <class Op>
  Op op(Recorder& recorder, const Part& part) const;
};

/// True if so many ranks can exchange heads: the query heads divide among them, and so do the key
/// and value heads, or each of these goes to equally many ranks, with the queries that read it.
bool can_exchange_heads(const kernels::AttentionShape& shape, int ranks);

/// True if `ranks` that share sequences exchange heads, false if they gather keys and values.
/// @param shape with the heads that the ranks share
/// @throws Error (exit 2) if the deck asks for heads and they cannot be exchanged
bool exchanges_heads(const ModelConfig::Attention& attention, const kernels::AttentionShape& shape,
                     int ranks);

/// (query, key) pairs of a head that the busiest of `ranks` has, which gather keys: of its own
/// tokens or, with `zigzag`, of two chunks. All `tokens` are taken for equal causal sequences,
/// of `pairs` in all; of one token each if there are fewer pairs.
std::int64_t busiest_pairs(std::int64_t tokens, std::int64_t pairs, int ranks, bool zigzag);

using ContextGroup = std::shared_ptr<const parallel::RankGroup>;

/// The way that the deck says. @throws Error (exit 2) if the ranks cannot share heads that way
std::unique_ptr<ContextAttention> make_context_attention(const ModelConfig::Attention& attention,
                                                         const kernels::AttentionShape& shape,
                                                         ContextGroup group);

/// Ranks exchange heads, so that each has all tokens of some of them.
std::unique_ptr<ContextAttention> make_head_exchange(const kernels::AttentionShape& shape,
                                                     ContextGroup group);
/// Ranks have the queries of their own tokens and gather keys and values.
/// @param zigzag queries are exchanged for those of an early and a late chunk; one_product makes
/// queries, keys and values: else those of queries lie beside the exchange of the others
std::unique_ptr<ContextAttention> make_key_exchange(const kernels::AttentionShape& shape,
                                                    ContextGroup group, bool zigzag,
                                                    bool one_product);

}  // namespace stowage::layers
