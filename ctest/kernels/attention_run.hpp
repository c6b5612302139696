#pragma once

#include <algorithm>

#include "ctest/kernels/packed.hpp"
#include "ctest/kernels/support.hpp"
#include "kernels/attention/attention.hpp"

/// Attention and its gradients on tensors of tests.
namespace stowage::kernels::test {

/// Heads side by side in the columns of a tensor from `first` on.
inline HeadsOf<View> heads(const View& view, std::int64_t head_dim, std::int64_t first = 0) {
  return heads_in_columns(view, first, view.extent(1), head_dim);
}

struct AttentionTensors {
  HeadsOf<View> q, k, v, o;
  View lse, cu_seqlens, seq_idx;
  HeadsOf<View> d_o, dq, dk, dv;
  View order, room;  ///< workspaces of the forward and the backward
};

/// Both directions of one problem.
struct AttentionPair {
  AttentionForward forward;
  AttentionBackward backward;

  AttentionPair(const AttentionShape& shape, const Packed& packed, Dtype storage)
      : AttentionPair(shape, packed, packed.tokens, storage) {}
  AttentionPair(const AttentionShape& shape, const Packed& packed, std::int64_t queries,
                Dtype storage, bool wide = false)
      : forward{shape, packed.tokens, queries, packed.documents(), storage},
        backward{shape, packed.tokens, queries, packed.documents(), storage, wide} {}

  Array order() const { return room(forward.workspace_bytes()); }
  Array room() const { return room(backward.workspace_bytes()); }

  void run_forward(Queue& queue, const AttentionTensors& t) const {
    forward.run(queue, {.q = t.q,
                        .k = t.k,
                        .v = t.v,
                        .cu_seqlens = t.cu_seqlens,
                        .seq_idx = t.seq_idx,
                        .o = t.o,
                        .lse = t.lse,
                        .workspace = t.order});
  }
  void run_backward(Queue& queue, const AttentionTensors& t) const {
    backward.run(queue, {.d_o = t.d_o,
                         .q = t.q,
                         .k = t.k,
                         .v = t.v,
                         .o = t.o,
                         .lse = t.lse,
                         .cu_seqlens = t.cu_seqlens,
                         .seq_idx = t.seq_idx,
                         .workspace = t.room,
                         .dq = t.dq,
                         .dk = t.dk,
                         .dv = t.dv});
  }
  void run(Queue& queue, const AttentionTensors& t) const {
    run_forward(queue, t);
    run_backward(queue, t);
  }

 private:
  static Array room(std::size_t bytes) { return workspace(std::max<std::size_t>(1, bytes)); }
};

}  // namespace stowage::kernels::test
