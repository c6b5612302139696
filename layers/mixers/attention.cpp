#include "kernels/attention/attention.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <string>
#include <vector>

#include "kernels/elementwise/elementwise.hpp"
#include "kernels/norm/head_rmsnorm.hpp"
#include "kernels/rope/rope.hpp"
#include "layers/context/attention_exchange.hpp"
#include "layers/context/head_exchange.hpp"
#include "layers/context/zigzag_chunks.hpp"
#include "layers/mixers/layer.hpp"
#include "layers/mixers/products.hpp"
#include "layers/recording/partition.hpp"

namespace stowage::layers {
namespace {

using Views = std::span<const execution::View>;
using kernels::Columns;

/// Causal grouped-query attention inside documents. q, k and v are columns of one projection; heads
/// of q and k may be normed, then turned by their positions.
///
/// Ranks that share sequences exchange heads, so that each has all tokens of some of them; or they
/// have the queries of their own tokens, and keys and values are gathered, again for the backward,
/// whose shares of their gradients are summed in the order of ranks. Those queries may be exchanged
/// for ones of an early and a late chunk, which are two parts of the work.
class Attention final : public Mixer {
 public:
  explicit Attention(const MixerPlace& place)
      : width_(place.config.width),
        rows_(place.ranks.shared_group(parallel::Group::tensor)),
        context_(place.ranks.shared_group(parallel::Group::context)),
        partition_(place.ranks.group(parallel::Group::tensor)),
        rope_(place.config.attention.rope),
        frequencies_(place.config.attention.frequencies),
        norms_(place.config.attention.norms),
        epsilon_(place.config.norm_epsilon),
        shape_(shape_of(place.config.attention, partition_)),
        exchange_(place.ranks.shared_group(parallel::Group::context)),
        by_heads_(exchanges_heads(place.config.attention, shape_, context_.size())),
        zigzag_chunks_(place.ranks.shared_group(parallel::Group::context)),
        zigzag_(place.config.attention.zigzag && gathers_keys()),
        qkv_{{place.prefix + ".attn.qkv.weight",
              {query_width(place.config) + 2 * kv_width(place.config), width_},
              Init::normal,
              true,
              "dense",
              partition_.cut(0, {query_width(place.config),
                                 {kv_width(place.config), tensor_copies(place.config)},
                                 {kv_width(place.config), tensor_copies(place.config)}}),
              partition_.repeat({query_width(), query_width() + 2 * kv_width()},
                                tensor_copies(place.config))},
             place.fp8_gradients()},
        proj_{{place.prefix + ".attn.proj.weight",
               {width_, query_width(place.config)},
               Init::residual_normal,
               true,
               "dense",
               partition_.cut(1, {query_width(place.config)})},
              place.fp8_gradients()},
        q_norm_{norm_parameter(place.prefix + ".attn.q_norm.weight")},
        k_norm_{norm_parameter(place.prefix + ".attn.k_norm.weight")},
        parameters_{proj_.weight, qkv_.weight} {
    if (norms_) parameters_.insert(parameters_.begin() + 1, {q_norm_, k_norm_});
  }

  const std::vector<Parameter>& parameters() const override { return parameters_; }

  Tensor forward(Recorder& recorder, Tensor mine) const override {
    const std::int64_t n = recorder.tokens();
    const kernels::AttentionShape shape = batch_shape(recorder);
    Saved& kept = recorder.kept<Saved>(*this);
    kept = {};
    kept.x = mine;
    const AllRows x = rows_.gather_others(recorder, "x", mine);
    if (apart()) {
      // Keys and values come first, so that the product of queries is beside their exchange.
      kept.keys = project(recorder, x, keys_section(), kept);
      kept.all_keys = all_keys(recorder, "kv", kept.keys);
      kept.queries = project(recorder, x, queries_section(), kept);
    } else {
      const Tensor qkv = project(recorder, x, whole_section(), kept);
      kept.queries = kept.keys =
          by_heads_ ? exchange_.to_sequence(recorder, "qkv", qkv, qkv_blocks(), "core_attn") : qkv;
      kept.all_keys = all_keys(recorder, "kv", kept.keys);
    }
    kept.out = recorder.saved("core_out", {n, query_width()}, "attn_proj");
    core(recorder, shape, kept);
    return rows_.reduce_each(
        recorder, "out", "delta", width_, [&](const SomeRows& y, const RowBlock& some) {
          proj_.forward(recorder, "proj" + some.suffix, {kept.out, some.rows}, y);
        });
  }

  Tensor backward(Recorder& recorder, Tensor dy_mine) const override {
    const std::int64_t n = recorder.tokens();
    const kernels::AttentionShape shape = batch_shape(recorder);
    const Saved& kept = recorder.kept<Saved>(*this);
    const AllRows dy = rows_.gather_each(recorder, "dy", dy_mine);
    const Tensor x = rows_.gather(recorder, "x_again", kept.x);
    const Tensor dout = recorder.scratch("dcore_out", {n, query_width()});
    for (const RowBlock& some : dy.blocks)
      proj_.backward_input(recorder, "proj_backward" + some.suffix, dy.of(some), {dout, some.rows});
    proj_.backward_weight(recorder, "proj_weight_backward", dy.all, kept.out,
                          rows_.spare_weights());
    Tensor dqkv = core_backward(recorder, shape, kept, dout);
    if (rope_) {
      const Tensor draw = recorder.scratch("dqkv_turned", {n, qkv_.outputs()});
      rotate(recorder, dqkv, draw, whole_section(), true);
      dqkv = draw;
    }
    if (norms_) dqkv = norm_backward(recorder, kept.raw, dqkv);
    const Tensor dx = recorder.scratch("dx", {n, width_});
    qkv_.backward_input(recorder, "qkv_backward", dqkv, dx);
    const SharedRows::Summands summands = rows_.send_partials(recorder, "dx_mine", dx);
    qkv_.backward_weight(recorder, "qkv_weight_backward", dqkv, x);
    return rows_.sum(recorder, summands);
  }

 private:
  struct Saved {
    Tensor x, out;
    Tensor queries;           ///< the first columns
    Tensor keys;              ///< and values: the last columns; the same tensor if not apart()
    Tensor all_keys;          ///< of all tokens of the sequences; for forward alone
    Tensor raw;               ///< of q and k before their norms, if they have any
    std::vector<Tensor> lse;  ///< of each part
  };

  /// Queries of one call of the kernel: all that this rank's attention is of, or a chunk of them.
  struct Part {
    std::string name;  ///< behind those of ops and tensors
    std::int64_t first = 0, count = 0;
  };
  std::vector<Part> parts(const Recorder& recorder) const {
    if (!zigzag_) {
      const bool whole = by_heads_;
      return {{"", whole ? 0 : recorder.batch().first_token,
               whole ? recorder.batch().sequence_tokens : recorder.tokens()}};
    }
    const std::array<std::int64_t, 2> first = zigzag_chunks_.first_tokens(recorder);
    const std::int64_t count = recorder.tokens() / 2;
    return {{"_early", first[0], count}, {"_late", first[1], count}};
  }
  /// Of a head of one part; the same on every rank, whose plans are alike: those of the busiest.
  std::int64_t pairs(const Recorder& recorder) const {
    const Batch& batch = recorder.batch();
    if (!gathers_keys()) return batch.attention_pairs;
    return busiest_pairs(batch.sequence_tokens, batch.attention_pairs, context_.size(), zigzag_) /
           (zigzag_ ? 2 : 1);
  }

  /// Some of the outputs of the projection, made by a product of their own.
  struct Section {
    std::string suffix;  ///< of names
    execution::Range outputs;
    std::int64_t heads = 0, kv_heads = 0;
  };
  Section whole_section() const { return {"", {}, shape_.heads, shape_.kv_heads}; }
  Section queries_section() const { return {"_q", {0, query_width()}, shape_.heads, 0}; }
  Section keys_section() const {
    return {"_kv", {query_width(), qkv_.outputs()}, 0, shape_.kv_heads};
  }

  /// The section's columns of [q | k | v], normed and turned.
  Tensor project(Recorder& recorder, const AllRows& x, const Section& section, Saved& kept) const {
    const std::int64_t n = recorder.tokens();
    const std::int64_t width = (section.heads + 2 * section.kv_heads) * shape_.head_dim;
    const std::string& suffix = section.suffix;
    const Tensor result = by_heads_ ? recorder.scratch("qkv_rows", {n, width})
                                    : recorder.saved("qkv" + suffix, {n, width}, "core_attn");
    Tensor product = result;
    if (norms_)
      product = kept.raw = recorder.saved("qkv_raw", {n, width}, "core_attn");
    else if (rope_)
      product = recorder.scratch("qkv_raw" + suffix, {n, width});
    for (const RowBlock& some : x.blocks)
      qkv_.forward(recorder, "qkv" + suffix + some.suffix, x.of(some), {product, some.rows},
                   section.outputs);
    if (norms_) {
      const Tensor normed = rope_ ? recorder.scratch("qkv_normed", {n, width}) : result;
      norm(recorder, product, normed);
      product = normed;
    }
    if (rope_) rotate(recorder, product, result, section, false);
    return result;
  }

  /// Columns of the rows [q | k | v] as a tensor of their own.
  Tensor pack(Recorder& recorder, const std::string& name, Tensor qkv, std::int64_t width,
              std::int64_t first) const {
    const std::int64_t n = recorder.tokens();
    const Tensor own = recorder.scratch(name + "_own", {n, width});
    recorder.compute(name, kernels::PackColumns{n, width, recorder.storage()},
                     {.columns = {qkv, first, width}, .packed = own});
    return own;
  }

  /// (n, [K P | K P]) keys and values of all tokens of the sequences, or `keys` if they are all.
  Tensor all_keys(Recorder& recorder, const std::string& name, Tensor keys) const {
    if (!gathers_keys()) return keys;
    if (!apart()) keys = pack(recorder, name, keys, 2 * kv_width(), query_width());
    return context_.gather(recorder, name, keys);
  }

  /// Of each part the rows whose first columns are its queries.
  std::vector<Tensor> queries(Recorder& recorder, const std::string& name, Tensor rows) const {
    if (!zigzag_) return {rows};
    if (!apart()) rows = pack(recorder, name, rows, query_width(), 0);
    return of_parts(recorder, name, rows);
  }

  /// The parts' rows of what each of this rank's tokens has for its heads.
  std::vector<Tensor> of_parts(Recorder& recorder, const std::string& name, Tensor rows) const {
    if (by_heads_) return {exchange_.to_sequence(recorder, name, rows, out_blocks())};
    if (!zigzag_) return {rows};
    const auto chunks = zigzag_chunks_.to_chunks(recorder, name, rows);
    return {chunks.begin(), chunks.end()};
  }

  /// Softmax and products, into kept.out and kept.lse.
  void core(Recorder& recorder, const kernels::AttentionShape& shape, Saved& kept) const {
    const std::vector<Part> parts = this->parts(recorder);
    // What comes of a message cannot be made again in backward: that of chunks stays.
    for (const Part& part : parts)
      kept.lse.push_back(recorder.saved("lse" + part.name, recorder.accumulation(),
                                        {shape.heads, part.count}, zigzag_ ? "" : "core_attn"));
    const std::vector<Tensor> queries = this->queries(recorder, "q", kept.queries);
    const Tensor kv = kept.all_keys;
    const Tensor workspace = recorder.workspace(
        "forward_workspace", op<kernels::AttentionForward>(recorder, shape, {}).workspace_bytes());
    std::vector<Tensor> outs;
    for (std::size_t i = 0; i < parts.size(); ++i) {
      const Part& part = parts[i];
      outs.push_back(by_heads_ || zigzag_
                         ? recorder.scratch("heads_out" + part.name,
                                            {part.count, shape.heads * shape.head_dim})
                         : kept.out);
      recorder.compute("core" + part.name, op<kernels::AttentionForward>(recorder, shape, part),
                       {.q = first_heads(recorder, queries[i]),
                        .k = key(recorder, shape, kv),
                        .v = value(recorder, shape, kv),
                        .cu_seqlens = recorder.batch().cu_seqlens,
                        .seq_idx = recorder.batch().sequence_seq_idx,
                        .o = first_heads(recorder, outs[i]),
                        .lse = kept.lse[i],
                        .workspace = workspace});
    }
    if (by_heads_) exchange_.to_rows(recorder, "core_out", outs[0], out_blocks(), kept.out);
    if (zigzag_) zigzag_chunks_.to_rows(recorder, "core_out", {outs[0], outs[1]}, kept.out);
  }

  /// @return gradient of the rows [q | k | v]
  Tensor core_backward(Recorder& recorder, const kernels::AttentionShape& shape, const Saved& kept,
                       Tensor dout) const {
    const std::vector<Tensor> outs = of_parts(recorder, "heads_out_again", kept.out);
    const std::vector<Tensor> douts = of_parts(recorder, "dheads_out", dout);
    const std::vector<Tensor> queries = this->queries(recorder, "q_again", kept.queries);
    const Tensor kv = all_keys(recorder, "kv_again", kept.keys);
    const Tensor dqkv = recorder.scratch("dqkv", {recorder.tokens(), qkv_.outputs()});
    if (by_heads_ && kv_copies() == 1) {
      const Tensor part = recorder.scratch(
          "dqkv_heads",
          {recorder.batch().sequence_tokens, qkv_blocks().part_width(context_.size())});
      part_backward(recorder, shape, kept.lse[0], 0, {douts[0], outs[0], queries[0], kv, part, {}});
      exchange_.to_rows(recorder, "dqkv", part, qkv_blocks(), dqkv);
      return dqkv;
    }
    if (context_.size() == 1) {
      part_backward(recorder, shape, kept.lse[0], 0, {douts[0], outs[0], queries[0], kv, dqkv, {}});
      return dqkv;
    }
    // Shares of the gradients of keys and values are rounded when they are summed.
    const execution::Dtype wide = recorder.accumulation();
    const std::vector<Part> parts = this->parts(recorder);
    std::vector<Tensor> dqs, dkvs;
    for (std::size_t i = 0; i < parts.size(); ++i) {
      const std::int64_t heads = shape.heads * shape.head_dim;
      dqs.push_back(separate_queries()
                        ? recorder.scratch("dq" + parts[i].name + "_part", {parts[i].count, heads})
                        : dqkv);
      dkvs.push_back(recorder.scratch(
          "dkv_all" + parts[i].name, wide,
          {recorder.batch().sequence_tokens, 2 * shape.kv_heads * shape.head_dim}));
      part_backward(recorder, shape, kept.lse[i], i,
                    {douts[i], outs[i], queries[i], kv, dqs[i], dkvs[i]});
    }
    if (zigzag_) recorder.add("dkv_sum", dkvs[1], dkvs[0]);
    join_gradients(recorder, dqs, dkvs[0], dqkv);
    return dqkv;
  }

  /// Gradients of this rank's rows [q | k | v], from those of its parts of the queries, and its
  /// shares of those of the keys and values that it had.
  void join_gradients(Recorder& recorder, const std::vector<Tensor>& dqs, Tensor dkv,
                      Tensor dqkv) const {
    const std::int64_t n = recorder.tokens();
    Tensor own, dq;
    SharedRows::Summands summands;
    if (by_heads_) {
      own = recorder.scratch("dkv", recorder.accumulation(), {n, 2 * kv_width()});
      exchange_.to_rows(recorder, "dkv", dkv, kv_blocks(), own);
    } else {
      summands = context_.send_partials(recorder, "dkv", dkv);
    }
    if (separate_queries()) {
      dq = recorder.scratch("dq", {n, query_width()});
      by_heads_ ? exchange_.to_rows(recorder, "dq", dqs[0], out_blocks(), dq)
                : zigzag_chunks_.to_rows(recorder, "dq", {dqs[0], dqs[1]}, dq);
    }
    if (!by_heads_) own = context_.sum(recorder, summands);
    std::vector<Use> uses = {read(own), separate_queries() ? write(dqkv) : update(dqkv)};
    if (dq) uses.push_back(read(dq));
    Cost cost = kernels::Cast{recorder.buffer(own), recorder.storage()}.cost();
    if (dq) cost = cost + kernels::PackColumns{n, query_width(), recorder.storage()}.cost();
    recorder.compute("dkv_own", cost, std::move(uses),
                     [shape = shape_](execution::Queue& q, Views v) {
                       kernels::unpack_columns(q, v[0], key_and_value(shape, v[1]));
                       if (v.size() > 2) kernels::unpack_columns(q, v[2], query(shape, v[1]));
                     });
  }

  struct PartGradients {
    Tensor dout, out, queries, kv;
    Tensor dq;   ///< whose first columns are those of q
    Tensor dkv;  ///< whose last columns are those of k and v; none: dq's last ones
  };

  /// Gradients that part `index` of the queries has.
  void part_backward(Recorder& recorder, const kernels::AttentionShape& shape, Tensor lse,
                     std::size_t index, const PartGradients& of) const {
    const Part part = parts(recorder)[index];
    auto backward = op<kernels::AttentionBackward>(recorder, shape, part);
    backward.wide = static_cast<bool>(of.dkv);
    const Tensor workspace =
        recorder.workspace("workspace" + part.name, backward.workspace_bytes());
    const Tensor dkv = of.dkv ? of.dkv : of.dq;
    recorder.compute("core_backward" + part.name, backward,
                     {.d_o = first_heads(recorder, of.dout),
                      .q = first_heads(recorder, of.queries),
                      .k = key(recorder, shape, of.kv),
                      .v = value(recorder, shape, of.kv),
                      .o = first_heads(recorder, of.out),
                      .lse = lse,
                      .cu_seqlens = recorder.batch().cu_seqlens,
                      .seq_idx = recorder.batch().sequence_seq_idx,
                      .workspace = workspace,
                      .dq = first_heads(recorder, of.dq),
                      .dk = key(recorder, shape, dkv),
                      .dv = value(recorder, shape, dkv)});
  }

  /// AttentionForward or AttentionBackward of some queries.
  template <class Op>
  Op op(Recorder& recorder, const kernels::AttentionShape& shape, const Part& part) const {
    Op op{};
    op.shape = shape;
    op.shape.first_query = part.first;
    op.tokens = recorder.batch().sequence_tokens;
    op.queries = part.count;
    op.documents = documents(recorder);
    op.storage = recorder.storage();
    op.scores = pairs(recorder);
    return op;
  }

  /// The heads of this rank.
  static kernels::AttentionShape shape_of(const ModelConfig::Attention& attention,
                                          const Partition& partition) {
    kernels::AttentionShape shape;
    shape.heads = partition.share(attention.heads, "model.num_attention_heads");
    shape.kv_heads = partition.share_or_copy(attention.kv_heads, "model.num_query_groups");
    shape.head_dim = attention.head_dim;
    shape.causal = true;
    shape.scale = 1.0 / std::sqrt(static_cast<double>(attention.head_dim));
    return shape;
  }

  /// Tensor ranks that have the same key and value head.
  int tensor_copies(const ModelConfig& config) const {
    return partition_.copies(config.attention.kv_heads, "model.num_query_groups");
  }

  /// With what is known of the batch.
  kernels::AttentionShape batch_shape(const Recorder& recorder) const {
    kernels::AttentionShape shape = shape_;
    shape.pairs = recorder.batch().attention_pairs;
    if (by_heads_) {
      shape.heads /= context_.size();
      shape.kv_heads /= context_.size() / kv_copies();
    }
    return shape;
  }
  /// Whether the gradients of queries come to this rank apart from those of keys.
  bool separate_queries() const { return by_heads_ || zigzag_; }
  /// Whether products make queries apart from keys and values. The norms' gradient is of both.
  bool apart() const { return gathers_keys() && !norms_; }
  bool gathers_keys() const { return context_.size() > 1 && !by_heads_; }
  /// Ranks of the context group that have the same key and value head, if they exchange heads.
  std::int64_t kv_copies() const {
    return std::max<std::int64_t>(1, context_.size() / shape_.kv_heads);
  }
  kernels::ColumnBlocks qkv_blocks() const {
    return {{query_width(), kv_width(), kv_width()}, {1, kv_copies(), kv_copies()}};
  }
  kernels::ColumnBlocks kv_blocks() const {
    return {{kv_width(), kv_width(), 0}, {kv_copies(), kv_copies(), 1}};
  }
  kernels::ColumnBlocks out_blocks() const { return {{query_width(), 0, 0}}; }

  /// C, the capacity of cu_seqlens.
  static std::int64_t documents(Recorder& recorder) {
    return recorder.program().info(recorder.batch().cu_seqlens).buffers[0].shape[0] - 1;
  }

  std::int64_t query_width() const { return shape_.heads * shape_.head_dim; }
  std::int64_t kv_width() const { return shape_.kv_heads * shape_.head_dim; }
  /// Of all ranks.
  static std::int64_t query_width(const ModelConfig& config) {
    return std::int64_t{config.attention.heads} * config.attention.head_dim;
  }
  static std::int64_t kv_width(const ModelConfig& config) {
    return std::int64_t{config.attention.kv_heads} * config.attention.head_dim;
  }

  static Columns query(const kernels::AttentionShape& s, const execution::View& qkv) {
    return {qkv, 0, s.heads * s.head_dim};
  }
  /// The last columns of [q | k | v] and of [k | v].
  static Columns key_and_value(const kernels::AttentionShape& s, const execution::View& qkv) {
    const std::int64_t count = 2 * s.kv_heads * s.head_dim;
    return {qkv, qkv.extent(1) - count, count};
  }
  /// The first heads of rows, and those of the keys and values that rows end with.
  kernels::HeadsOf<Tensor> first_heads(const Recorder& recorder, Tensor rows) const {
    return heads_from(recorder, rows, 0);
  }
  kernels::HeadsOf<Tensor> key(const Recorder& recorder, const kernels::AttentionShape& s,
                               Tensor rows) const {
    return heads_from(recorder, rows, -2 * s.kv_heads * s.head_dim);
  }
  kernels::HeadsOf<Tensor> value(const Recorder& recorder, const kernels::AttentionShape& s,
                                 Tensor rows) const {
    return heads_from(recorder, rows, -s.kv_heads * s.head_dim);
  }
  /// @param first column; below 0: from the end
  kernels::HeadsOf<Tensor> heads_from(const Recorder& recorder, Tensor rows,
                                      std::int64_t first) const {
    const std::int64_t width = recorder.buffer(rows).shape.back();
    return kernels::heads_in_columns(rows, first < 0 ? width + first : first, width,
                                     shape_.head_dim);
  }

  void rotate(Recorder& recorder, Tensor from, Tensor to, const Section& section,
              bool backward) const {
    const Batch& batch = recorder.batch();
    recorder.compute(
        (backward ? "rope_backward" : "rope") + section.suffix,
        kernels::Rope{.tokens = recorder.tokens(),
                      .heads = section.heads,
                      .kv_heads = section.kv_heads,
                      .head_dim = shape_.head_dim,
                      .starts = recorder.buffer(batch.cu_seqlens).elements(),
                      .storage = recorder.storage(),
                      .frequencies = frequencies_,
                      .backward = backward,
                      .first_token = batch.first_token},
        {.in = from, .cu_seqlens = batch.cu_seqlens, .seq_idx = batch.seq_idx, .out = to});
  }

  /// Each tensor rank has other heads, so the gradients are summands.
  Parameter norm_parameter(std::string name) const {
    return {std::move(name), {shape_.head_dim}, Init::ones, false, partition_.replicated()};
  }
  kernels::HeadSizes head_sizes() const { return {shape_.heads, shape_.kv_heads, shape_.head_dim}; }

  void norm(Recorder& recorder, Tensor from, Tensor to) const {
    recorder.compute("qk_norm",
                     kernels::HeadRmsnormForward{.tokens = recorder.tokens(),
                                                 .sizes = head_sizes(),
                                                 .storage = recorder.storage(),
                                                 .eps = epsilon_},
                     {.in = from,
                      .q_weight = recorder.parameter(q_norm_),
                      .k_weight = recorder.parameter(k_norm_),
                      .out = to});
  }

  /// @return gradient of the product
  Tensor norm_backward(Recorder& recorder, Tensor raw, Tensor dnormed) const {
    const std::int64_t n = recorder.tokens();
    const Tensor draw = recorder.scratch("dqkv_raw", {n, qkv_.outputs()});
    const kernels::HeadRmsnormBackward norm{.tokens = n,
                                            .sizes = head_sizes(),
                                            .storage = recorder.storage(),
                                            .eps = epsilon_,
                                            .accumulate = recorder.batch().accumulate};
    const Tensor workspace = recorder.workspace("qk_norm_workspace", norm.workspace_bytes());
    recorder.compute("qk_norm_backward", norm,
                     {.dout = dnormed,
                      .in = raw,
                      .q_weight = recorder.parameter(q_norm_),
                      .k_weight = recorder.parameter(k_norm_),
                      .din = draw,
                      .dq_weight = recorder.gradient(q_norm_),
                      .dk_weight = recorder.gradient(k_norm_),
                      .workspace = workspace});
    return draw;
  }

  std::int64_t width_;
  SharedRows rows_;
  SharedRows context_;
  Partition partition_;
  bool rope_;
  kernels::RopeFrequencies frequencies_;
  bool norms_;
  double epsilon_;
  kernels::AttentionShape shape_;
  HeadExchange exchange_;
  bool by_heads_;
  ZigzagChunks zigzag_chunks_;
  bool zigzag_;
  Product qkv_;
  Product proj_;
  Parameter q_norm_, k_norm_;
  std::vector<Parameter> parameters_;
};

}  // namespace

std::unique_ptr<Mixer> make_attention(const MixerPlace& place) {
  return std::make_unique<Attention>(place);
}

}  // namespace stowage::layers
