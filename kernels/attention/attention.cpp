#include "kernels/attention/attention.hpp"

#include <fmt/core.h>

#include <algorithm>

#include "execution/causal_pairs.hpp"
#include "kernels/attention/attention_cuda.hpp"
#include "kernels/cost.hpp"
#include "kernels/launch.hpp"

namespace stowage::kernels {

using execution::Cost;
using execution::View;

namespace {

/// Of either direction, without strides.
template <class Op>
AttentionLayout layout_of(const Op& op) {
  const AttentionShape& shape = op.shape;
  AttentionLayout layout;
  layout.storage = op.storage;
  layout.tokens = op.tokens;
  layout.heads = static_cast<int>(shape.heads);
  layout.kv_heads = static_cast<int>(shape.kv_heads);
  layout.head_dim = static_cast<int>(shape.head_dim);
  layout.causal = shape.causal;
  layout.scale = static_cast<float>(shape.scale);
  layout.documents = static_cast<int>(shape.length > 0 ? op.tokens / shape.length : op.documents);
  layout.uniform_length = shape.length;
  layout.pairs = shape.pairs;
  layout.first_query = shape.first_query;
  layout.query_gradient = shape.query_gradient;
  return layout;
}

}  // namespace

/// The address of heads, of which each spec says the extents.
template <class Element>
void bind(std::string_view op, const Spec& spec, const HeadsOf<View>& heads,
          HeadMatrix<Element>& matrix) {
  using Byte = std::conditional_t<std::is_const_v<Element>, const std::byte, std::byte>;
  Element* data = nullptr;
  detail::bind(op, spec, heads.whole, data);
  const auto first = static_cast<std::size_t>(heads.first) * execution::size_bytes(spec.dtype);
  matrix = {reinterpret_cast<Element*>(reinterpret_cast<Byte*>(data) + first), extents_of(spec),
            heads.strides};
}

void check(const Operands& operands, const Spec& spec, const HeadsOf<View>& heads) {
  const HeadExtents extents = extents_of(spec);
  const HeadStrides& s = heads.strides;
  operands.require(operands.storage(heads.whole, spec.name) == spec.dtype,
                   fmt::format("{} has another dtype than {}", spec.name,
                               spec.dtype == execution::Dtype::fp32 ? "its sums" : "o"));
  // Heads side by side in columns: as many rows as queries or tokens.
  if (heads.whole.rank() == 2 && s.row == heads.whole.extent(1) && s.head == extents.head_dim &&
      s.batch == 0)
    operands.check(Columns{heads.whole, heads.first, extents.heads * extents.head_dim}, spec.name,
                   spec.dtype, extents.tokens(), extents.heads * extents.head_dim);
  operands.require(heads.first >= 0 && s.row >= 0 && s.head >= 0 && s.batch >= 0 &&
                       heads.first + head_span(extents, s) <= heads.whole.buffer().elements(),
                   fmt::format("the heads of {} reach beyond its tensor", spec.name));
  operands.require(spec.access == execution::Access::read || heads_are_disjoint(extents, s),
                   fmt::format("rows of heads of {} overlap", spec.name));
}

std::string AttentionShape::fault(std::int64_t tokens, std::int64_t queries) const {
  if (kv_heads <= 0 || heads % kv_heads != 0) return "heads is not a multiple of kv_heads";
  if (heads <= 0 || head_dim <= 0) return "no heads, or none of their columns";
  if (scale <= 0) return "scale is not positive";
  if (length > 0) {
    if (tokens % length != 0) return "the tokens are no whole sequences";
    return first_query == 0 && queries == tokens
               ? ""
               : "a part of the queries of sequences of one length";
  }
  if (queries <= 0 && tokens != 0) return "no queries";
  const bool inside = first_query >= 0 && first_query + queries <= tokens;
  return inside ? "" : "the queries reach beyond the tokens";
}

template <class S>
int AttentionForward::launch(const Operands<Pointers<S>>& o, void* stream) const {
  if (tokens == 0) return 0;
  AttentionLayout layout = layout_of(*this);
  layout.queries = queries;
  layout.q = o.q.strides;
  layout.k = o.k.strides;
  layout.v = o.v.strides;
  layout.o = o.o.strides;
  attention_forward_cuda(layout,
                         {.q = o.q.data,
                          .k = o.k.data,
                          .v = o.v.data,
                          .o = o.o.data,
                          .lse = o.lse,
                          .cu_seqlens = o.cu_seqlens,
                          .workspace = o.workspace},
                         static_cast<cudaStream_t>(stream));
  return 0;
}

std::size_t AttentionForward::workspace_bytes() const {
  return attention_forward_cuda_workspace_bytes(layout_of(*this));
}

template <class S>
int AttentionBackward::launch(const Operands<Pointers<S>>& o, void* stream) const {
  if (tokens == 0) return 0;
  AttentionLayout layout = layout_of(*this);
  layout.queries = queries;
  layout.q = o.q.strides;
  layout.k = o.k.strides;
  layout.v = o.v.strides;
  layout.o = o.o.strides;
  layout.d_o = o.d_o.strides;
  layout.dq = o.dq.strides;
  layout.dk = o.dk.strides;
  layout.dv = o.dv.strides;
  layout.fp32_key_gradients = wide || storage == execution::Dtype::fp32;
  attention_backward_cuda(layout,
                          {.d_o = o.d_o.data,
                           .q = o.q.data,
                           .k = o.k.data,
                           .v = o.v.data,
                           .o = o.o.data,
                           .lse = o.lse,
                           .cu_seqlens = o.cu_seqlens,
                           .dq = o.dq.data,
                           .dk = o.dk.data,
                           .dv = o.dv.data,
                           .workspace = o.workspace},
                          static_cast<cudaStream_t>(stream));
  return 0;
}

std::size_t AttentionBackward::workspace_bytes() const {
  const std::size_t on_host = static_cast<std::size_t>(shape.heads * tokens) *
                              execution::size_bytes(execution::accumulation(storage));
  return std::max(on_host, attention_backward_cuda_workspace_bytes(layout_of(*this)));
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

template <class Op>
double idle_flops(const Op& op, double products, const RowOverhead& of) {
  constexpr double kReference = 128;
  const double width = static_cast<double>(op.shape.head_dim);
  const double of_pair = 2 * products * width;
  const double with_other = (of_pair + of.other) / (1 + of.other / (2 * products * kReference));
  const double more_pairs = static_cast<double>(op.queries) * (of.masked + of.alone);
  const double all_pairs = static_cast<double>(op.scores) + more_pairs;
  return static_cast<double>(op.shape.heads) *
         std::max(0.0, all_pairs * with_other - static_cast<double>(op.scores) * of_pair);
}

}  // namespace

Cost AttentionForward::cost() const {
  const std::int64_t heads = 2 * shape.heads + 2 * shape.kv_heads;  // q, o and k, v
  return {2 * product_flops(shape.heads, scores, shape.head_dim),
          bytes(queries * heads * shape.head_dim, storage) +
              bytes(queries * shape.heads, execution::accumulation(storage)),
          idle_flops(*this, 2, {32, shape.head_dim <= 64 ? 256.0 : 0.0, 200}), 0, 1};
}

Cost AttentionBackward::cost() const {
  const std::int64_t heads =
      4 * shape.heads + 4 * shape.kv_heads;  // q, o, d_o, dq and k, v, dk, dv
  return {5 * product_flops(shape.heads, scores, shape.head_dim),
          bytes(queries * heads * shape.head_dim, storage) +
              2 * bytes(queries * shape.heads, execution::accumulation(storage)),
          idle_flops(*this, 5, {64, 64, 650}), 0, 3};
}

STOWAGE_OPERATOR_RUN(AttentionForward)
STOWAGE_OPERATOR_RUN(AttentionBackward)

}  // namespace stowage::kernels
