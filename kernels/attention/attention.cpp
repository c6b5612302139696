#include "kernels/attention/attention.hpp"

#include <algorithm>

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

// The checks that both directions share; tokens are the rows of q.
std::int64_t check(const Operands& operands, const AttentionShape& shape, Dtype storage,
                   const Columns& q, const Columns& k, const Columns& v, const View& cu_seqlens,
                   const View& seq_idx, const View& o, const View& lse) {
  operands.require(shape.kv_heads > 0 && shape.heads % shape.kv_heads == 0,
                   "heads is not a multiple of kv_heads");
  operands.rank(q.view, "q", 2);
  const std::int64_t n = q.rows();
  operands.check(q, "q", storage, n, shape.heads * shape.head_dim);
  operands.check(k, "k", storage, n, shape.kv_heads * shape.head_dim);
  operands.check(v, "v", storage, n, shape.kv_heads * shape.head_dim);
  operands.rank(cu_seqlens, "cu_seqlens", 1);
  operands.check(cu_seqlens, "cu_seqlens", Dtype::int32, {cu_seqlens.extent(0)});
  operands.check(seq_idx, "seq_idx", Dtype::int32, {n});
  operands.check(o, "o", storage, {n, shape.heads * shape.head_dim});
  operands.check(lse, "lse", execution::accumulation(storage), {shape.heads, n});
  return n;
}

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
  layout.documents = static_cast<int>(documents);
  layout.pairs = shape.pairs;
  layout.o_stride = shape.heads * shape.head_dim;
  return layout;
}

#if STOWAGE_HAVE_CUDA
std::byte* address(const Columns& c) {
  return c.view.as<std::byte>() +
         static_cast<std::size_t>(c.first) * execution::size_bytes(c.view.dtype());
}

void launch_forward(AttentionLayout layout, const Columns& q, const Columns& k, const Columns& v,
                    const View& cu_seqlens, const View& o, const View& lse, const View& workspace,
                    void* stream) {
  if (layout.tokens == 0) return;
  layout.q_stride = q.width();
  layout.k_stride = k.width();
  layout.v_stride = v.width();
  AttentionForwardPointers args;
  args.q = address(q);
  args.k = address(k);
  args.v = address(v);
  args.o = o.data[0];
  args.lse = lse.as<float>();
  args.cu_seqlens = cu_seqlens.as<const int>();
  args.workspace = Address(workspace).as<void>();
  attention_forward_cuda(layout, args, static_cast<cudaStream_t>(stream));
}

void launch_backward(AttentionLayout layout, const View& d_o, const Columns& q, const Columns& k,
                     const Columns& v, const View& o, const View& lse, const View& cu_seqlens,
                     const Columns& dq, const Columns& dk, const Columns& dv, const View& workspace,
                     void* stream) {
  if (layout.tokens == 0) return;
  layout.q_stride = q.width();
  layout.k_stride = k.width();
  layout.v_stride = v.width();
  layout.dq_stride = dq.width();
  layout.dk_stride = dk.width();
  layout.dv_stride = dv.width();
  AttentionBackwardPointers args;
  args.d_o = d_o.data[0];
  args.q = address(q);
  args.k = address(k);
  args.v = address(v);
  args.o = o.data[0];
  args.lse = lse.as<const float>();
  args.cu_seqlens = cu_seqlens.as<const int>();
  args.dq = address(dq);
  args.dk = address(dk);
  args.dv = address(dv);
  args.workspace = workspace.data[0];
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

}  // namespace

void attention_forward(Queue& queue, const AttentionShape& shape, const Columns& q,
                       const Columns& k, const Columns& v, const View& cu_seqlens,
                       const View& seq_idx, const View& o, const View& lse, const View& workspace) {
  const Operands operands("attention_forward");
  const Dtype storage = operands.storage(o, "o");
  const std::int64_t n = check(operands, shape, storage, q, k, v, cu_seqlens, seq_idx, o, lse);
  const std::int64_t documents = cu_seqlens.extent(0) - 1;
  operands.workspace(workspace, attention_forward_workspace_bytes(shape, n, documents, storage));
  run(
      queue, storage,
      [shape, q = ColumnsAddress(q), k = ColumnsAddress(k), v = ColumnsAddress(v),
       seq_idx = Address(seq_idx), o = Address(o), lse = Address(lse)]<class S>() {
        const AttentionInputs<S> inputs{q.as<const S>(), k.as<const S>(), v.as<const S>(),
                                        seq_idx.as<const std::int32_t>()};
        attention_forward_ref(shape, inputs, o.as<S>(), lse.as<Accumulation<S>>());
      },
      [&](void* stream) {
        launch_forward(layout_of(shape, n, documents, storage), q, k, v, cu_seqlens, o, lse,
                       workspace, stream);
      });
}

void attention_backward(Queue& queue, const AttentionShape& shape, const View& d_o,
                        const Columns& q, const Columns& k, const Columns& v, const View& o,
                        const View& lse, const View& cu_seqlens, const View& seq_idx,
                        const Columns& dq, const Columns& dk, const Columns& dv,
                        const View& workspace) {
  const Operands operands("attention_backward");
  const Dtype storage = operands.storage(o, "o");
  const std::int64_t n = check(operands, shape, storage, q, k, v, cu_seqlens, seq_idx, o, lse);
  operands.same(d_o, "d_o", o);
  operands.check(dq, "dq", storage, n, q.count);
  operands.check(dk, "dk", storage, n, k.count);
  operands.check(dv, "dv", storage, n, v.count);
  const std::int64_t documents = cu_seqlens.extent(0) - 1;
  operands.workspace(workspace, attention_backward_workspace_bytes(shape, n, documents, storage));
  run(
      queue, storage,
      [shape, d_o = Address(d_o), q = ColumnsAddress(q), k = ColumnsAddress(k),
       v = ColumnsAddress(v), o = Address(o), lse = Address(lse), seq_idx = Address(seq_idx),
       dq = ColumnsAddress(dq), dk = ColumnsAddress(dk), dv = ColumnsAddress(dv),
       room = Address(workspace)]<class S>() {
        using A = Accumulation<S>;
        const AttentionInputs<S> inputs{q.as<const S>(), k.as<const S>(), v.as<const S>(),
                                        seq_idx.as<const std::int32_t>()};
        attention_backward_ref(shape, inputs, d_o.as<const S>(), o.as<const S>(), lse.as<const A>(),
                               dq.as<S>(), dk.as<S>(), dv.as<S>(), room.as<A>());
      },
      [&](void* stream) {
        launch_backward(layout_of(shape, n, documents, storage), d_o, q, k, v, o, lse, cu_seqlens,
                        dq, dk, dv, workspace, stream);
      });
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
    pairs += causal ? length * (length + 1) / 2 : length * length;
  return pairs;
}

Cost attention_forward_cost(const AttentionShape& shape, std::int64_t tokens, std::int64_t pairs,
                            Dtype storage) {
  const std::int64_t heads = 2 * shape.heads + 2 * shape.kv_heads;  // q, o and k, v
  return {2 * product_flops(shape.heads, pairs, shape.head_dim),
          bytes(tokens * heads * shape.head_dim, storage) +
              bytes(tokens * shape.heads, execution::accumulation(storage))};
}

Cost attention_backward_cost(const AttentionShape& shape, std::int64_t tokens, std::int64_t pairs,
                             Dtype storage) {
  const std::int64_t heads =
      4 * shape.heads + 4 * shape.kv_heads;  // q, o, d_o, dq and k, v, dk, dv
  return {5 * product_flops(shape.heads, pairs, shape.head_dim),
          bytes(tokens * heads * shape.head_dim, storage) +
              2 * bytes(tokens * shape.heads, execution::accumulation(storage))};
}

}  // namespace stowage::kernels
