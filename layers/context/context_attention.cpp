#include "layers/context/context_attention.hpp"

#include <fmt/core.h>

#include "execution/error.hpp"
#include "kernels/elementwise/elementwise.hpp"

namespace stowage::layers {
namespace {

using Heads = kernels::HeadsOf<Tensor>;

/// Heads of rows from this column on. @param first below 0: from the end
Heads heads_from(const Recorder& recorder, Tensor rows, std::int64_t first, std::int64_t head_dim) {
  const std::int64_t width = recorder.buffer(rows).shape.back();
  return kernels::heads_in_columns(rows, first < 0 ? width + first : first, width, head_dim);
}
Heads query(const Recorder& recorder, const kernels::AttentionShape& s, Tensor rows) {
  return heads_from(recorder, rows, 0, s.head_dim);
}
Heads key(const Recorder& recorder, const kernels::AttentionShape& s, Tensor rows) {
  return heads_from(recorder, rows, -2 * kv_width(s), s.head_dim);
}
Heads value(const Recorder& recorder, const kernels::AttentionShape& s, Tensor rows) {
  return heads_from(recorder, rows, -kv_width(s), s.head_dim);
}

/// One rank has whole sequences.
class OwnSequences final : public ContextAttention {
 public:
  explicit OwnSequences(const kernels::AttentionShape& shape) : ContextAttention(shape, shape) {}

  void forward(Recorder& recorder, const Project& project, Saved& kept) const override {
    const Part all = part(recorder);
    kept.queries = kept.keys = saved_qkv(recorder, project, QkvSection::all(rank_));
    kept.out = saved_out(recorder);
    kept.lse = {saved_lse(recorder, all, "core_attn")};
    core(recorder, all, kept.queries, kept.keys, forward_workspace(recorder), kept.out,
         kept.lse[0]);
  }

  Tensor backward(Recorder& recorder, const Saved& kept, Tensor dout) const override {
    const Part all = part(recorder);
    const Tensor dqkv = recorder.scratch("dqkv", {all.count, qkv_width(rank_)});
    core_backward(recorder, all, kept.lse[0], {dout, kept.out, kept.queries, kept.keys, dqkv, {}});
    return dqkv;
  }

 private:
  static Part part(const Recorder& recorder) { return {"", 0, recorder.tokens()}; }
};

[[noreturn]] void refuse_heads(const kernels::AttentionShape& shape, int ranks) {
  std::string others;
  for (int context = 2; context <= shape.heads; ++context)
    if (can_exchange_heads(shape, context))
      others += fmt::format("{}{}", others.empty() ? "" : ", ", context);
  execution::throw_usage(
      "parallel.context_attention = \"all_to_all\": parallel.context = {} ranks cannot share {} "
      "query heads and {} query groups of a tensor rank; {}parallel.context_attention = "
      "\"all_gather\" needs no division",
      ranks, shape.heads, shape.kv_heads,
      others.empty() ? "" : fmt::format("parallel.context may be {}; ", others));
}

}  // namespace

/// AttentionForward or AttentionBackward of some queries.
template <class Op>
Op ContextAttention::op(Recorder& recorder, const Part& part) const {
  const Batch& batch = recorder.batch();
  Op op{};
  op.shape = core_;
  op.shape.pairs = batch.attention_pairs;
  op.shape.first_query = part.first;
  op.tokens = batch.sequence_tokens;
  op.queries = part.count;
  op.documents = recorder.buffer(batch.cu_seqlens).shape[0] - 1;
  op.storage = recorder.storage();
  op.scores = pairs(recorder);
  return op;
}

Tensor ContextAttention::saved_qkv(Recorder& recorder, const Project& project,
                                   const QkvSection& section) const {
  const std::int64_t width = (section.heads + 2 * section.kv_heads) * rank_.head_dim;
  const Tensor rows =
      recorder.saved("qkv" + section.suffix, {recorder.tokens(), width}, "core_attn");
  project(section, rows);
  return rows;
}

Tensor ContextAttention::forward_workspace(Recorder& recorder) const {
  return recorder.workspace("forward_workspace",
                            op<kernels::AttentionForward>(recorder, {}).workspace_bytes());
}

void ContextAttention::core(Recorder& recorder, const Part& part, Tensor queries, Tensor kv,
                            Tensor workspace, Tensor out, Tensor lse) const {
  recorder.compute("core" + part.name, op<kernels::AttentionForward>(recorder, part),
                   {.q = query(recorder, core_, queries),
                    .k = key(recorder, core_, kv),
                    .v = value(recorder, core_, kv),
                    .cu_seqlens = recorder.batch().cu_seqlens,
                    .seq_idx = recorder.batch().sequence_seq_idx,
                    .o = query(recorder, core_, out),
                    .lse = lse,
                    .workspace = workspace});
}

void ContextAttention::core_backward(Recorder& recorder, const Part& part, Tensor lse,
                                     const Gradients& of) const {
  auto backward = op<kernels::AttentionBackward>(recorder, part);
  backward.wide = static_cast<bool>(of.dkv);
  const Tensor workspace = recorder.workspace("workspace" + part.name, backward.workspace_bytes());
  const Tensor dkv = of.dkv ? of.dkv : of.dq;
  recorder.compute("core_backward" + part.name, backward,
                   {.d_o = query(recorder, core_, of.dout),
                    .q = query(recorder, core_, of.queries),
                    .k = key(recorder, core_, of.kv),
                    .v = value(recorder, core_, of.kv),
                    .o = query(recorder, core_, of.out),
                    .lse = lse,
                    .cu_seqlens = recorder.batch().cu_seqlens,
                    .seq_idx = recorder.batch().sequence_seq_idx,
                    .workspace = workspace,
                    .dq = query(recorder, core_, of.dq),
                    .dk = key(recorder, core_, dkv),
                    .dv = value(recorder, core_, dkv)});
}

void ContextAttention::join(Recorder& recorder, Tensor dkv, Tensor dq, Tensor dqkv) const {
  recorder.compute("dkv_own",
                   kernels::UnpackColumns{.rows = recorder.tokens(),
                                          .width = qkv_width(rank_),
                                          .count = 2 * kv_width(rank_),
                                          .from = recorder.accumulation(),
                                          .storage = recorder.storage(),
                                          .all = static_cast<bool>(dq)},
                   {.last = dkv, .x = dqkv, .before = dq});
}

bool can_exchange_heads(const kernels::AttentionShape& shape, int ranks) {
  return shape.heads % ranks == 0 && (shape.kv_heads % ranks == 0 || ranks % shape.kv_heads == 0);
}

bool exchanges_heads(const ModelConfig::Attention& attention, const kernels::AttentionShape& shape,
                     int ranks) {
  using Exchange = ModelConfig::Attention::Exchange;
  if (ranks == 1 || attention.exchange == Exchange::keys) return false;
  if (can_exchange_heads(shape, ranks)) return true;
  if (attention.exchange == Exchange::heads) refuse_heads(shape, ranks);
  return false;
}

std::unique_ptr<ContextAttention> make_context_attention(const ModelConfig::Attention& attention,
                                                         const kernels::AttentionShape& shape,
                                                         ContextGroup group) {
  if (group->size() == 1) return std::make_unique<OwnSequences>(shape);
  if (exchanges_heads(attention, shape, group->size()))
    return make_head_exchange(shape, std::move(group));
  // The norms' gradient is of queries and keys.
  return make_key_exchange(shape, std::move(group), attention.zigzag, attention.norms);
}

}  // namespace stowage::layers
