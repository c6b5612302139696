#include "kernels/attention/attention.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <string_view>
#include <utility>

#include "execution/causal_pairs.hpp"
#include "kernels/attention/attention_cuda.hpp"
#include "kernels/cost.hpp"
#include "kernels/dispatch.hpp"

namespace stowage::kernels {

using execution::Accumulation;
using execution::Cost;
using execution::Dtype;
using execution::Queue;
using execution::View;

namespace {

// The checks that both directions share; gives the queries, which are columns of lse, and the
// tokens, which have documents.
class Checks {
 public:
  Checks(const Operands& operands, const AttentionShape& shape, Dtype storage, const View& lse,
         const View& seq_idx)
      : operands_(operands), shape_(shape), storage_(storage) {
    operands.require(shape.kv_heads > 0 && shape.heads % shape.kv_heads == 0,
                     "heads is not a multiple of kv_heads");
    operands.require(shape.heads > 0 && shape.head_dim > 0, "no heads, or none of their columns");
    operands.require(shape.scale > 0, "scale is not positive");
    operands.rank(lse, "lse", 2);
    queries_ = tokens_ = lse.extent(1);
    operands.check(lse, "lse", execution::accumulation(storage), {shape.heads, queries_});
    if (shape.length > 0) {
      operands.require(tokens_ % shape.length == 0, "the tokens are no whole sequences");
      operands.require(shape.first_query == 0, "a part of the queries of sequences of one length");
      return;
    }
    operands.rank(seq_idx, "seq_idx", 1);
    tokens_ = seq_idx.extent(0);
    operands.check(seq_idx, "seq_idx", Dtype::int32, {tokens_});
    operands.require(queries_ > 0 || tokens_ == 0, "no queries");
    operands.require(shape.first_query >= 0 && shape.first_query + queries_ <= tokens_,
                     "the queries reach beyond the tokens");
  }

  std::int64_t tokens() const { return tokens_; }

  HeadExtents query_extents() const { return extents(queries_, shape_.heads); }
  HeadExtents key_extents() const { return extents(tokens_, shape_.kv_heads); }

  /// What both directions read. Gives the documents, where their number is not that of sequences.
  std::int64_t inputs(const AttentionHeads& q, const AttentionHeads& k, const AttentionHeads& v,
                      const View& cu_seqlens) const {
    read(q, "q", query_extents());
    read(k, "k", key_extents());
    read(v, "v", key_extents());
    if (shape_.length > 0) return 0;
    operands_.rank(cu_seqlens, "cu_seqlens", 1);
    operands_.check(cu_seqlens, "cu_seqlens", Dtype::int32, {cu_seqlens.extent(0)});
    return cu_seqlens.extent(0) - 1;
  }

  void read(const AttentionHeads& m, std::string_view name, const HeadExtents& extents) const {
    operands_.require(operands_.storage(m.view, name) == storage_,
                      fmt::format("{} has another dtype than o", name));
    within(m, name, extents);
  }

  void written(const AttentionHeads& m, std::string_view name, const HeadExtents& extents) const {
    read(m, name, extents);
    apart(m, name, extents);
  }

  /// Gradients of keys and values, both of the storage or of the accumulation dtype.
  void key_gradients(const AttentionHeads& dk, const AttentionHeads& dv) const {
    const Dtype dtype = operands_.storage(dk.view, "dk");
    operands_.require(dtype == storage_ || dtype == execution::accumulation(storage_),
                      "dk has neither the dtype of o nor of its sums");
    operands_.require(operands_.storage(dv.view, "dv") == dtype, "dv has another dtype than dk");
    for (const auto& [m, name] : {std::pair(&dk, "dk"), std::pair(&dv, "dv")}) {
      within(*m, name, key_extents());
      apart(*m, name, key_extents());
    }
  }

 private:
  void within(const AttentionHeads& m, std::string_view name, const HeadExtents& extents) const {
    const HeadStrides& s = m.strides;
    operands_.require(m.first >= 0 && s.row >= 0 && s.head >= 0 && s.batch >= 0 &&
                          m.first + head_span(extents, s) <= m.view.buffer().elements(),
                      fmt::format("the heads of {} reach beyond its tensor", name));
  }

  void apart(const AttentionHeads& m, std::string_view name, const HeadExtents& extents) const {
    operands_.require(heads_are_disjoint(extents, m.strides),
                      fmt::format("rows of heads of {} overlap", name));
  }

  HeadExtents extents(std::int64_t rows, std::int64_t heads) const {
    const bool equal = shape_.length > 0;
    return {equal ? rows / shape_.length : 1, equal ? shape_.length : rows, heads, shape_.head_dim};
  }

  const Operands& operands_;
  const AttentionShape& shape_;
  Dtype storage_;
  std::int64_t queries_ = 0, tokens_ = 0;
};

// The same heads on the host, by addresses: a view may not outlive the call.
class HeadsAddress {
 public:
  HeadsAddress(const AttentionHeads& m, const HeadExtents& extents)
      : base_(m.view), first_(m.first), extents_(extents), strides_(m.strides) {}

  template <class T>
  HeadMatrix<T> as() const {
    return {base_.as<T>() + first_, extents_, strides_};
  }

 private:
  Address base_;
  std::int64_t first_;
  HeadExtents extents_;
  HeadStrides strides_;
};

AttentionLayout layout_of(const AttentionShape& shape, std::int64_t tokens, std::int64_t documents,
                          Dtype storage) {
  AttentionLayout layout;
  layout.storage = storage;
  layout.tokens = tokens;
  layout.heads = static_cast<int>(shape.heads);
  layout.kv_heads = static_cast<int>(shape.kv_heads);
  layout.head_dim = static_cast<int>(shape.head_dim);
  layout.causal = shape.causal;
  layout.scale = static_cast<float>(shape.scale);
  layout.documents = static_cast<int>(shape.length > 0 ? tokens / shape.length : documents);
  layout.uniform_length = shape.length;
  layout.pairs = shape.pairs;
  layout.first_query = shape.first_query;
  layout.query_gradient = shape.query_gradient;
  return layout;
}

#if STOWAGE_HAVE_CUDA
std::byte* address(const AttentionHeads& m) {
  return m.view.as<std::byte>() +
         static_cast<std::size_t>(m.first) * execution::size_bytes(m.view.dtype());
}

const int* starts(const View& cu_seqlens) {
  return cu_seqlens ? cu_seqlens.as<const int>() : nullptr;
}

void launch_forward(AttentionLayout layout, const AttentionHeads& q, const AttentionHeads& k,
                    const AttentionHeads& v, const View& cu_seqlens, const AttentionHeads& o,
                    const View& lse, const View& workspace, void* stream) {
  layout.queries = lse.extent(1);
  if (layout.tokens == 0) return;
  layout.q = q.strides;
  layout.k = k.strides;
  layout.v = v.strides;
  layout.o = o.strides;
  AttentionForwardPointers args;
  args.q = address(q);
  args.k = address(k);
  args.v = address(v);
  args.o = address(o);
  args.lse = lse.as<float>();
  args.cu_seqlens = starts(cu_seqlens);
  args.workspace = Address(workspace).as<void>();
  attention_forward_cuda(layout, args, static_cast<cudaStream_t>(stream));
}

void launch_backward(AttentionLayout layout, const AttentionBackwardOperands<AttentionHeads>& views,
                     void* stream) {
  layout.queries = views.lse.extent(1);
  if (layout.tokens == 0) return;
  layout.q = views.q.strides;
  layout.k = views.k.strides;
  layout.v = views.v.strides;
  layout.o = views.o.strides;
  layout.d_o = views.d_o.strides;
  layout.dq = views.dq.strides;
  layout.dk = views.dk.strides;
  layout.dv = views.dv.strides;
  layout.fp32_key_gradients = views.dk.view.dtype() == Dtype::fp32;
  AttentionBackwardPointers args;
  args.d_o = address(views.d_o);
  args.q = address(views.q);
  args.k = address(views.k);
  args.v = address(views.v);
  args.o = address(views.o);
  args.lse = views.lse.as<const float>();
  args.cu_seqlens = starts(views.cu_seqlens);
  args.dq = address(views.dq);
  args.dk = address(views.dk);
  args.dv = address(views.dv);
  args.workspace = views.workspace.data[0];
  attention_backward_cuda(layout, args, static_cast<cudaStream_t>(stream));
}
#else
template <class... Operand>
void launch_forward(const Operand&...) {
  throw_no_cuda("attention_forward");
}
template <class... Operand>
void launch_backward(const Operand&...) {
  throw_no_cuda("attention_backward");
}
#endif

// What the form with columns promises beyond the general one: as many rows as queries or tokens,
// in columns that exist. Gives the dtype of all of them.
Dtype check_columns(const Operands& operands, const AttentionShape& shape, const Columns& q,
                    const Columns& k, const Columns& v, const Columns& o, const View& lse,
                    const View& seq_idx) {
  const Dtype storage = operands.storage(o.view, "o");
  operands.rank(q.view, "q", 2);
  const std::int64_t m = q.rows(), n = shape.length > 0 ? m : seq_idx.extent(0);
  operands.check(q, "q", storage, m, shape.heads * shape.head_dim);
  operands.check(k, "k", storage, n, shape.kv_heads * shape.head_dim);
  operands.check(v, "v", storage, n, shape.kv_heads * shape.head_dim);
  operands.check(o, "o", storage, m, shape.heads * shape.head_dim);
  operands.check(lse, "lse", execution::accumulation(storage), {shape.heads, m});
  return storage;
}

}  // namespace

void attention_forward(Queue& queue, const AttentionShape& shape, const AttentionHeads& q,
                       const AttentionHeads& k, const AttentionHeads& v, const View& cu_seqlens,
                       const View& seq_idx, const AttentionHeads& o, const View& lse,
                       const View& workspace) {
  const Operands operands("attention_forward");
  const Dtype storage = operands.storage(o.view, "o");
  const Checks checks(operands, shape, storage, lse, seq_idx);
  const std::int64_t documents = checks.inputs(q, k, v, cu_seqlens);
  const HeadExtents queries = checks.query_extents(), keys = checks.key_extents();
  checks.written(o, "o", queries);
  const std::int64_t n = checks.tokens();
  operands.workspace(workspace, attention_forward_workspace_bytes(shape, n, documents, storage));
  run(
      queue, storage,
      [shape, q = HeadsAddress(q, queries), k = HeadsAddress(k, keys), v = HeadsAddress(v, keys),
       seq_idx = Address(shape.length > 0 ? View() : seq_idx), o = HeadsAddress(o, queries),
       lse = Address(lse)]<class S>() {
        const AttentionInputs<S> inputs{q.as<const S>(), k.as<const S>(), v.as<const S>(),
                                        seq_idx.as<const std::int32_t>()};
        attention_forward_ref(shape, inputs, o.as<S>(), lse.as<Accumulation<S>>());
      },
      [&](void* stream) {
        launch_forward(layout_of(shape, n, documents, storage), q, k, v, cu_seqlens, o, lse,
                       workspace, stream);
      });
}

void attention_forward(Queue& queue, const AttentionShape& shape, const Columns& q,
                       const Columns& k, const Columns& v, const View& cu_seqlens,
                       const View& seq_idx, const View& o, const View& lse, const View& workspace) {
  const Operands operands("attention_forward");
  operands.rank(o, "o", 2);
  check_columns(operands, shape, q, k, v, all_columns(o), lse, seq_idx);
  const auto of = [&](const Columns& columns) {
    return AttentionHeads::of(columns, shape.head_dim);
  };
  attention_forward(queue, shape, of(q), of(k), of(v), cu_seqlens, seq_idx, of(all_columns(o)), lse,
                    workspace);
}

void attention_backward(Queue& queue, const AttentionShape& shape,
                        const AttentionBackwardOperands<AttentionHeads>& views) {
  const Operands operands("attention_backward");
  const Dtype storage = operands.storage(views.o.view, "o");
  const Checks checks(operands, shape, storage, views.lse, views.seq_idx);
  const std::int64_t documents = checks.inputs(views.q, views.k, views.v, views.cu_seqlens);
  const HeadExtents queries = checks.query_extents(), keys = checks.key_extents();
  checks.read(views.d_o, "d_o", queries);
  checks.read(views.o, "o", queries);
  checks.written(views.dq, "dq", queries);
  checks.key_gradients(views.dk, views.dv);
  const std::int64_t n = checks.tokens();
  operands.workspace(views.workspace,
                     attention_backward_workspace_bytes(shape, n, documents, storage));
  const auto heads = [&](const AttentionHeads& m) { return HeadsAddress(m, queries); };
  const auto kv_heads = [&](const AttentionHeads& m) { return HeadsAddress(m, keys); };
  run(
      queue, storage,
      [shape, d_o = heads(views.d_o), q = heads(views.q), k = kv_heads(views.k),
       v = kv_heads(views.v), o = heads(views.o), lse = Address(views.lse),
       seq_idx = Address(shape.length > 0 ? View() : views.seq_idx), dq = heads(views.dq),
       dk = kv_heads(views.dk), dv = kv_heads(views.dv), room = Address(views.workspace),
       narrow = views.dk.view.dtype() == storage]<class S>() {
        using A = Accumulation<S>;
        const AttentionInputs<S> inputs{q.as<const S>(), k.as<const S>(), v.as<const S>(),
                                        seq_idx.as<const std::int32_t>()};
        const auto with = [&]<class G>(const HeadMatrix<G>& to_k, const HeadMatrix<G>& to_v) {
          attention_backward_ref(shape, inputs, d_o.as<const S>(), o.as<const S>(),
                                 lse.as<const A>(), dq.as<S>(), to_k, to_v, room.as<A>());
        };
        narrow ? with(dk.as<S>(), dv.as<S>()) : with(dk.as<A>(), dv.as<A>());
      },
      [&](void* stream) {
        launch_backward(layout_of(shape, n, documents, storage), views, stream);
      });
}

void attention_backward(Queue& queue, const AttentionShape& shape,
                        const AttentionBackwardOperands<Columns>& views) {
  const Operands operands("attention_backward");
  const Dtype storage =
      check_columns(operands, shape, views.q, views.k, views.v, views.o, views.lse, views.seq_idx);
  const std::int64_t m = views.q.rows(), n = views.k.rows();
  operands.check(views.d_o, "d_o", storage, m, views.o.count);
  operands.check(views.dq, "dq", storage, m, views.q.count);
  operands.check(views.dk, "dk", views.dk.view.dtype(), n, views.k.count);
  operands.check(views.dv, "dv", views.dv.view.dtype(), n, views.v.count);
  const auto of = [&](const Columns& columns) {
    return AttentionHeads::of(columns, shape.head_dim);
  };
  attention_backward(queue, shape,
                     AttentionBackwardOperands<AttentionHeads>{.d_o = of(views.d_o),
                                                               .q = of(views.q),
                                                               .k = of(views.k),
                                                               .v = of(views.v),
                                                               .o = of(views.o),
                                                               .lse = views.lse,
                                                               .cu_seqlens = views.cu_seqlens,
                                                               .seq_idx = views.seq_idx,
                                                               .dq = of(views.dq),
                                                               .dk = of(views.dk),
                                                               .dv = of(views.dv),
                                                               .workspace = views.workspace});
}

std::size_t attention_forward_workspace_bytes(const AttentionShape& shape, std::int64_t tokens,
                                              std::int64_t documents, Dtype storage) {
  return attention_forward_cuda_workspace_bytes(layout_of(shape, tokens, documents, storage));
}

std::size_t attention_backward_workspace_bytes(const AttentionShape& shape, std::int64_t tokens,
                                               std::int64_t documents, Dtype storage) {
  const std::size_t on_host = static_cast<std::size_t>(shape.heads * tokens) *
                              execution::size_bytes(execution::accumulation(storage));
  return std::max(on_host, attention_backward_cuda_workspace_bytes(
                               layout_of(shape, tokens, documents, storage)));
}

std::int64_t attention_pairs(std::span<const std::int64_t> lengths, bool causal) {
  std::int64_t pairs = 0;
  for (const std::int64_t length : lengths)
    pairs += causal ? execution::causal_pairs(length, length) : length * length;
  return pairs;
}

namespace {

/// FLOPs that a tile's row takes beyond those of its pairs, of products whose heads have 128
/// columns. The mask leaves `masked` keys of a row's last tile, and a tile of rows stands alone in
/// its first and last steps, as long as products over `alone` keys take. What is done to a score
/// between products takes as long as products of `other` FLOPs, whatever the head's width: more
/// beside narrow heads. Fitted to attention_forward.h5, attention_backward.h5 and the ops of
/// train_dense_124m.h5 and train_hybrid_dense_1b.h5 in results/published/h200.
struct RowOverhead {
  double masked, alone, other;
};

double idle_flops(const AttentionShape& shape, std::int64_t tokens, std::int64_t pairs,
                  double products, const RowOverhead& of) {
  constexpr double kReference = 128;
  const double width = static_cast<double>(shape.head_dim);
  const double of_pair = 2 * products * width;
  const double with_other = (of_pair + of.other) / (1 + of.other / (2 * products * kReference));
  const double more_pairs = static_cast<double>(tokens) * (of.masked + of.alone);
  const double all_pairs = static_cast<double>(pairs) + more_pairs;
  return static_cast<double>(shape.heads) *
         std::max(0.0, all_pairs * with_other - static_cast<double>(pairs) * of_pair);
}

}  // namespace

Cost attention_forward_cost(const AttentionShape& shape, std::int64_t tokens, std::int64_t pairs,
                            Dtype storage) {
  const std::int64_t heads = 2 * shape.heads + 2 * shape.kv_heads;  // q, o and k, v
  return {2 * product_flops(shape.heads, pairs, shape.head_dim),
          bytes(tokens * heads * shape.head_dim, storage) +
              bytes(tokens * shape.heads, execution::accumulation(storage)),
          idle_flops(shape, tokens, pairs, 2, {32, shape.head_dim <= 64 ? 256.0 : 0.0, 200}), 0, 1};
}

Cost attention_backward_cost(const AttentionShape& shape, std::int64_t tokens, std::int64_t pairs,
                             Dtype storage) {
  const std::int64_t heads =
      4 * shape.heads + 4 * shape.kv_heads;  // q, o, d_o, dq and k, v, dk, dv
  return {5 * product_flops(shape.heads, pairs, shape.head_dim),
          bytes(tokens * heads * shape.head_dim, storage) +
              2 * bytes(tokens * shape.heads, execution::accumulation(storage)),
          idle_flops(shape, tokens, pairs, 5, {64, 64, 650}), 0, 3};
}

}  // namespace stowage::kernels
