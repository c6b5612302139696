#include <algorithm>
#include <array>
#include <optional>

#include "kernels/elementwise/elementwise.hpp"
#include "layers/context/context_attention.hpp"
#include "layers/context/zigzag_chunks.hpp"
#include "layers/recording/partition.hpp"

namespace stowage::layers {
namespace {

/// Keys and values are gathered, again for the backward, whose shares of their gradients are summed
/// in the order of ranks. Queries are this rank's, or those of its two chunks: two parts.
class KeyExchange final : public ContextAttention {
 public:
  KeyExchange(const kernels::AttentionShape& shape, ContextGroup group, bool zigzag,
              bool one_product)
      : ContextAttention(shape, shape), context_(group), apart_(!one_product) {
    if (zigzag) chunks_.emplace(std::move(group));
  }

  void forward(Recorder& recorder, const Project& project, Saved& kept) const override {
    kept.keys =
        saved_qkv(recorder, project, apart_ ? QkvSection::keys(rank_) : QkvSection::all(rank_));
    const Tensor kv = all_keys(recorder, "kv", kept.keys);
    kept.queries = apart_ ? saved_qkv(recorder, project, QkvSection::queries(rank_)) : kept.keys;
    kept.out = saved_out(recorder);
    const std::vector<Part> parts = this->parts(recorder);
    // What comes of a message cannot be made again in backward: that of chunks stays.
    for (const Part& part : parts)
      kept.lse.push_back(saved_lse(recorder, part, chunks_ ? "" : "core_attn"));
    const std::vector<Tensor> queries = this->queries(recorder, "q", kept.queries);
    const Tensor workspace = forward_workspace(recorder);
    std::vector<Tensor> outs;
    for (std::size_t i = 0; i < parts.size(); ++i) {
      outs.push_back(own_or_chunk(recorder, kept.out, "heads_out" + parts[i].name, parts[i].count));
      core(recorder, parts[i], queries[i], kv, workspace, outs[i], kept.lse[i]);
    }
    if (chunks_) chunks_->to_rows(recorder, "core_out", {outs[0], outs[1]}, kept.out);
  }

  Tensor backward(Recorder& recorder, const Saved& kept, Tensor dout) const override {
    const std::vector<Tensor> outs = of_parts(recorder, "heads_out_again", kept.out);
    const std::vector<Tensor> douts = of_parts(recorder, "dheads_out", dout);
    const std::vector<Tensor> queries = this->queries(recorder, "q_again", kept.queries);
    const Tensor kv = all_keys(recorder, "kv_again", kept.keys);
    const Tensor dqkv = recorder.scratch("dqkv", {recorder.tokens(), qkv_width(rank_)});
    const std::vector<Part> parts = this->parts(recorder);
    std::vector<Tensor> dqs, dkvs;
    for (std::size_t i = 0; i < parts.size(); ++i) {
      const Part& part = parts[i];
      dqs.push_back(own_or_chunk(recorder, dqkv, "dq" + part.name + "_part", part.count));
      // Shares of the gradients of keys and values are rounded when they are summed.
      dkvs.push_back(recorder.scratch("dkv_all" + part.name, recorder.accumulation(),
                                      {recorder.batch().sequence_tokens, 2 * kv_width(rank_)}));
      core_backward(recorder, part, kept.lse[i],
                    {douts[i], outs[i], queries[i], kv, dqs[i], dkvs[i]});
    }
    if (chunks_) recorder.add("dkv_sum", dkvs[1], dkvs[0]);
    const SharedRows::Summands summands = context_.send_partials(recorder, "dkv", dkvs[0]);
    Tensor dq;
    if (chunks_) {
      dq = recorder.scratch("dq", {recorder.tokens(), query_width(rank_)});
      chunks_->to_rows(recorder, "dq", {dqs[0], dqs[1]}, dq);
    }
    join(recorder, context_.sum(recorder, summands), dq, dqkv);
    return dqkv;
  }

 private:
  /// Those of the busiest rank.
  std::int64_t pairs(const Recorder& recorder) const override {
    const Batch& batch = recorder.batch();
    const bool zigzag = chunks_.has_value();
    return busiest_pairs(batch.sequence_tokens, batch.attention_pairs, context_.size(), zigzag) /
           (zigzag ? 2 : 1);
  }

  std::vector<Part> parts(const Recorder& recorder) const {
    if (!chunks_) return {{"", recorder.batch().first_token, recorder.tokens()}};
    const std::array<std::int64_t, 2> first = chunks_->first_tokens(recorder);
    const std::int64_t count = recorder.tokens() / 2;
    return {{"_early", first[0], count}, {"_late", first[1], count}};
  }

  /// This rank's rows, or as many of a chunk.
  Tensor own_or_chunk(Recorder& recorder, Tensor own, const std::string& name,
                      std::int64_t count) const {
    return chunks_ ? recorder.scratch(name, {count, query_width(rank_)}) : own;
  }

  /// Columns of the rows [q | k | v] as a tensor of their own.
  Tensor pack(Recorder& recorder, const std::string& name, Tensor qkv, std::int64_t first,
              std::int64_t width) const {
    const std::int64_t n = recorder.tokens();
    const Tensor own = recorder.scratch(name + "_own", {n, width});
    recorder.compute(name, kernels::PackColumns{n, width, recorder.storage()},
                     {.columns = {qkv, first, width}, .packed = own});
    return own;
  }

  /// (n, [K P | K P]) keys and values of all tokens of the sequences.
  Tensor all_keys(Recorder& recorder, const std::string& name, Tensor keys) const {
    if (!apart_) keys = pack(recorder, name, keys, query_width(rank_), 2 * kv_width(rank_));
    return context_.gather(recorder, name, keys);
  }

  /// Of each part the rows whose first columns are its queries.
  std::vector<Tensor> queries(Recorder& recorder, const std::string& name, Tensor rows) const {
    if (chunks_ && !apart_) rows = pack(recorder, name, rows, 0, query_width(rank_));
    return of_parts(recorder, name, rows);
  }

  /// The parts' rows of what each of this rank's tokens has for its heads.
  std::vector<Tensor> of_parts(Recorder& recorder, const std::string& name, Tensor rows) const {
    if (!chunks_) return {rows};
    const ZigzagChunks::Pair chunks = chunks_->to_chunks(recorder, name, rows);
    return {chunks.begin(), chunks.end()};
  }

  SharedRows context_;
  std::optional<ZigzagChunks> chunks_;
  bool apart_;  ///< products make queries apart from keys and values
};

}  // namespace

std::int64_t busiest_pairs(std::int64_t tokens, std::int64_t pairs, int ranks, bool zigzag) {
  const std::int64_t sequence = std::max<std::int64_t>(1, 2 * pairs / tokens - 1);
  const auto before = [&](std::int64_t token) {
    const std::int64_t inside = token % sequence;
    return (token / sequence * sequence * (sequence + 1) + inside * (inside + 1)) / 2;
  };
  const std::int64_t chunks = zigzag ? 2 * ranks : ranks;
  const auto of = [&](std::int64_t chunk) {
    return before((chunk + 1) * tokens / chunks) - before(chunk * tokens / chunks);
  };
  std::int64_t most = 0;
  for (std::int64_t rank = 0; rank < ranks; ++rank)
    most = std::max(most, of(rank) + (zigzag ? of(chunks - 1 - rank) : 0));
  return most;
}

std::unique_ptr<ContextAttention> make_key_exchange(const kernels::AttentionShape& shape,
                                                    ContextGroup group, bool zigzag,
                                                    bool one_product) {
  return std::make_unique<KeyExchange>(shape, std::move(group), zigzag, one_product);
}

}  // namespace stowage::layers
