#include <algorithm>
#include <string_view>

#include "kernels/elementwise/elementwise.hpp"
#include "layers/context/context_attention.hpp"

namespace stowage::layers {
namespace {

using kernels::AttentionShape;
using kernels::ColumnBlocks;

/// Ranks of the group that have the same key and value head.
std::int64_t kv_copies(const AttentionShape& rank, int ranks) {
  return std::max<std::int64_t>(1, ranks / rank.kv_heads);
}

AttentionShape share(AttentionShape shape, int ranks) {
  shape.kv_heads /= ranks / kv_copies(shape, ranks);
  shape.heads /= ranks;
  return shape;
}

/// Exchanges between all heads of a rank's own tokens, and a rank's share of the heads of all
/// tokens (DeepSpeed-Ulysses, arXiv 2309.14509). Blocks of which several ranks have the same share
/// are handed out to each of them, and summed on the way back.
class HeadExchange final : public ContextAttention {
 public:
  HeadExchange(const AttentionShape& rank, ContextGroup group)
      : ContextAttention(rank, share(rank, group->size())),
        group_(std::move(group)),
        copies_(kv_copies(rank, group_->size())) {}

  void forward(Recorder& recorder, const Project& project, Saved& kept) const override {
    const Part all = part(recorder);
    const Tensor rows = recorder.scratch("qkv_rows", {recorder.tokens(), qkv_width(rank_)});
    project(QkvSection::all(rank_), rows);
    kept.queries = kept.keys = to_sequence(recorder, "qkv", rows, qkv_blocks(), "core_attn");
    kept.out = saved_out(recorder);
    kept.lse = {saved_lse(recorder, all, "core_attn")};
    const Tensor workspace = forward_workspace(recorder);
    const Tensor out = recorder.scratch("heads_out", {all.count, query_width(core_)});
    core(recorder, all, kept.queries, kept.keys, workspace, out, kept.lse[0]);
    to_rows(recorder, "core_out", out, out_blocks(), kept.out);
  }

  Tensor backward(Recorder& recorder, const Saved& kept, Tensor dout_rows) const override {
    const Part all = part(recorder);
    const std::int64_t n = recorder.tokens();
    const Tensor out = to_sequence(recorder, "heads_out_again", kept.out, out_blocks());
    const Tensor dout = to_sequence(recorder, "dheads_out", dout_rows, out_blocks());
    const Tensor dqkv = recorder.scratch("dqkv", {n, qkv_width(rank_)});
    if (copies_ == 1) {
      const Tensor part = recorder.scratch("dqkv_heads", {all.count, qkv_width(core_)});
      core_backward(recorder, all, kept.lse[0], {dout, out, kept.queries, kept.keys, part, {}});
      to_rows(recorder, "dqkv", part, qkv_blocks(), dqkv);
      return dqkv;
    }
    // Shares of the gradients of keys and values are rounded when they are summed.
    const execution::Dtype wide = recorder.accumulation();
    const Tensor dq_part = recorder.scratch("dq_part", {all.count, query_width(core_)});
    const Tensor dkv_all = recorder.scratch("dkv_all", wide, {all.count, 2 * kv_width(core_)});
    core_backward(recorder, all, kept.lse[0],
                  {dout, out, kept.queries, kept.keys, dq_part, dkv_all});
    const Tensor dkv = recorder.scratch("dkv", wide, {n, 2 * kv_width(rank_)});
    to_rows(recorder, "dkv", dkv_all, kv_blocks(), dkv);
    const Tensor dq = recorder.scratch("dq", {n, query_width(rank_)});
    to_rows(recorder, "dq", dq_part, out_blocks(), dq);
    join(recorder, dkv, dq, dqkv);
    return dqkv;
  }

 private:
  static Part part(const Recorder& recorder) { return {"", 0, recorder.batch().sequence_tokens}; }

  ColumnBlocks qkv_blocks() const {
    return {{query_width(rank_), kv_width(rank_), kv_width(rank_)}, {1, copies_, copies_}};
  }
  ColumnBlocks kv_blocks() const {
    return {{kv_width(rank_), kv_width(rank_), 0}, {copies_, copies_, 1}};
  }
  ColumnBlocks out_blocks() const { return {{query_width(rank_), 0, 0}}; }

  /// (tokens, width) to (n, part_width): of each block this rank's part.
  /// @param module of the result, if it is saved
  Tensor to_sequence(Recorder& recorder, const std::string& name, Tensor x,
                     const ColumnBlocks& blocks, std::string_view module = {}) const {
    const std::int64_t ranks = group_->size(), tokens = recorder.tokens();
    const std::int64_t share = blocks.part_width(ranks);
    const Tensor parts = recorder.scratch(name + "_parts", {ranks, tokens, share});
    recorder.compute(name + "_split",
                     kernels::SplitColumns{tokens, ranks, blocks, recorder.storage()},
                     {.x = x, .parts = parts});
    const Tensor result = module.empty() ? recorder.scratch(name, {ranks * tokens, share})
                                         : recorder.saved(name, {ranks * tokens, share}, module);
    recorder.append(group_->all_to_all(recorder.program(), recorder.full_name("exchange_" + name),
                                       {parts, {}}, {result, {}}));
    return result;
  }
  /// And back into y (tokens, width), of the dtype of `part`.
  void to_rows(Recorder& recorder, const std::string& name, Tensor part, const ColumnBlocks& blocks,
               Tensor y) const {
    const std::int64_t ranks = group_->size(), tokens = recorder.tokens();
    const execution::Dtype dtype = recorder.buffer(part).dtype;
    const Tensor parts =
        recorder.scratch(name + "_parts", dtype, {ranks, tokens, blocks.part_width(ranks)});
    recorder.append(group_->all_to_all(recorder.program(), recorder.full_name("exchange_" + name),
                                       {part, {}}, {parts, {}}));
    recorder.compute(name + "_join", kernels::JoinColumns{tokens, ranks, blocks, dtype},
                     {.parts = parts, .x = y});
  }

  ContextGroup group_;
  std::int64_t copies_;
};

}  // namespace

std::unique_ptr<ContextAttention> make_head_exchange(const AttentionShape& shape,
                                                     ContextGroup group) {
  return std::make_unique<HeadExchange>(shape, std::move(group));
}

}  // namespace stowage::layers
