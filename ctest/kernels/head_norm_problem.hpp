#pragma once

#include "ctest/kernels/support.hpp"
#include "kernels/norm/head_rmsnorm.hpp"

namespace stowage::kernels::test {

/// Norms of query and key heads, forward and backward, on random data.
class HeadNorms {
 public:
  static constexpr double kEps = 1e-5;

  struct Sizes {
    std::int64_t tokens, heads, kv_heads, head_dim;
    bool accumulate;

    HeadSizes of_heads() const { return {heads, kv_heads, head_dim}; }
    std::int64_t elements() const { return tokens * of_heads().width(); }
  };
  struct Data {
    Values in, q_weight, k_weight, dout, old;
  };
  static Data random_data(Random& random, const Sizes& s, Dtype storage) {
    return {rounded(random.normal(s.elements(), 3), storage),
            rounded(random.normal(s.head_dim), storage),
            rounded(random.normal(s.head_dim), storage),
            rounded(random.normal(s.elements()), storage),
            rounded(random.normal(s.head_dim), Dtype::fp32)};
  }

  HeadNorms(Dtype storage, const Sizes& s, const Data& data)
      : s_(s),
        in(storage, {s.tokens, s.of_heads().width()}, data.in),
        q_weight(storage, {s.head_dim}, data.q_weight),
        k_weight(storage, {s.head_dim}, data.k_weight),
        dout(storage, {s.tokens, s.of_heads().width()}, data.dout),
        out(storage, {s.tokens, s.of_heads().width()}),
        din(storage, {s.tokens, s.of_heads().width()}),
        dq(sums(data, storage)),
        dk(sums(data, storage)),
        room(workspace(head_rmsnorm_backward_workspace_bytes(s.tokens, s.of_heads(), storage))) {}

  template <class At>
  void enqueue(Queue& q, At& at) const {
    head_rmsnorm_forward(q, at(in), at(q_weight), at(k_weight), at(out), s_.of_heads(), kEps);
    head_rmsnorm_backward(q,
                          {.dout = at(dout),
                           .in = at(in),
                           .q_weight = at(q_weight),
                           .k_weight = at(k_weight),
                           .din = at(din),
                           .dq_weight = at(dq),
                           .dk_weight = at(dk),
                           .workspace = at(room)},
                          s_.of_heads(), kEps, s_.accumulate);
  }

 private:
  Array sums(const Data& data, Dtype storage) const {
    const Dtype type = execution::accumulation(storage);
    return s_.accumulate ? Array(type, {s_.head_dim}, data.old) : Array(type, {s_.head_dim});
  }

  Sizes s_;

 public:
  Array in, q_weight, k_weight, dout, out, din, dq, dk, room;
};

}  // namespace stowage::kernels::test
