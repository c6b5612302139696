#pragma once

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "ctest/kernels/attention_run.hpp"

/// Attention on heads that lie apart in their tensors, on the host and on a GPU: cases, and what
/// the dense form gives for the same numbers. All that no head owns is NaN, before and after.
namespace stowage::kernels::test {

/// Where the heads of a matrix lie in a tensor.
struct HeadPlace {
  std::int64_t first = 0;
  HeadStrides strides;

  HeadsOf<View> in(const View& view) const { return {view, first, strides}; }
};

struct StridedCase {
  std::string name;
  AttentionShape shape;
  Packed packed;  ///< of equal lengths if shape.length is set
  HeadPlace q, k, v;
  std::int64_t qkv_elements = 0;
  HeadPlace o;
  std::int64_t o_elements = 0;

  HeadExtents extents(std::int64_t heads) const {
    const std::int64_t n = packed.tokens, length = shape.length > 0 ? shape.length : n;
    return {n / length, length, heads, shape.head_dim};
  }
  HeadExtents q_extents() const { return extents(shape.heads); }
  HeadExtents kv_extents() const { return extents(shape.kv_heads); }
  AttentionPair pair(Dtype storage) const { return {shape, packed, storage}; }
};

/// Calls `body(i, at)` for each element: i in a dense (tokens, heads, P), at in the tensor.
template <class Body>
void for_each_element(const HeadExtents& e, const HeadPlace& place, Body&& body) {
  std::int64_t i = 0;
  for (std::int64_t b = 0; b < e.sequences; ++b)
    for (std::int64_t t = 0; t < e.length; ++t)
      for (std::int64_t h = 0; h < e.heads; ++h)
        for (std::int64_t p = 0; p < e.head_dim; ++p, ++i)
          body(at(i), at(place.first + b * place.strides.batch_of(e.length) +
                         t * place.strides.row + h * place.strides.head + p));
}

inline void scatter(Values& tensor, const HeadExtents& e, const HeadPlace& place,
                    const Values& dense) {
  for_each_element(e, place, [&](std::size_t i, std::size_t at) { tensor[at] = dense[i]; });
}

/// Takes the heads out of the tensor: what stays must be poison.
inline Values take(Values& tensor, const HeadExtents& e, const HeadPlace& place) {
  Values dense(at(e.tokens() * e.heads * e.head_dim));
  for_each_element(e, place, [&](std::size_t i, std::size_t at) {
    dense[i] = tensor[at];
    tensor[at] = std::numeric_limits<double>::quiet_NaN();
  });
  return dense;
}

inline Values poison(std::int64_t elements) {
  return Values(at(elements), std::numeric_limits<double>::quiet_NaN());
}

struct StridedInputs {
  StridedInputs(Random& random, const StridedCase& c, Dtype storage) {
    const std::int64_t rows = c.packed.tokens * c.shape.head_dim;
    q = rounded(random.normal(rows * c.shape.heads), storage);
    k = rounded(random.normal(rows * c.shape.kv_heads), storage);
    v = rounded(random.normal(rows * c.shape.kv_heads), storage);
    d_o = rounded(random.normal(rows * c.shape.heads), storage);
  }
  Values q, k, v, d_o;  ///< dense (tokens, heads, P)
};

/// Dense too, but lse (heads, tokens).
struct StridedResults {
  Values o, lse, dq, dk, dv;
};

/// A case with its tensors: Array on the host, DeviceArray on a GPU.
template <class Tensor>
class StridedAttention {
 public:
  StridedAttention(const StridedCase& c, const StridedInputs& in, Dtype storage)
      : c_(c),
        qkv_(place(c, in, storage)),
        o_(tensor(storage, poison(c.o_elements))),
        d_o_(upstream(c, in, storage)),
        gradient_(tensor(storage, poison(c.qkv_elements))),
        lse_(Array(execution::accumulation(storage), {c.shape.heads, c.packed.tokens})),
        cu_seqlens_(c.packed.cu_seqlens()),
        seq_idx_(c.packed.seq_idx()),
        order_(c.pair(storage).order()),
        room_(c.pair(storage).room()) {}

  void run(Queue& queue) {
    const bool equal = c_.shape.length > 0;  // then nobody reads the documents
    const View cu_seqlens = equal ? View() : cu_seqlens_, seq_idx = equal ? View() : seq_idx_;
    c_.pair(o_.view().dtype())
        .run(queue, {.q = c_.q.in(qkv_),
                     .k = c_.k.in(qkv_),
                     .v = c_.v.in(qkv_),
                     .o = c_.o.in(o_),
                     .lse = lse_,
                     .cu_seqlens = cu_seqlens,
                     .seq_idx = seq_idx,
                     .d_o = c_.o.in(d_o_),
                     .dq = c_.q.in(gradient_),
                     .dk = c_.k.in(gradient_),
                     .dv = c_.v.in(gradient_),
                     .order = order_,
                     .room = room_});
  }

  StridedCase& description() { return c_; }

  StridedResults results() {
    Values o = values(o_), gradient = values(gradient_);
    StridedResults out{take(o, c_.q_extents(), c_.o), values(lse_),
                       take(gradient, c_.q_extents(), c_.q), take(gradient, c_.kv_extents(), c_.k),
                       take(gradient, c_.kv_extents(), c_.v)};
    for (const Values* rest : {&o, &gradient})
      for (std::size_t i = 0; i < rest->size(); ++i)
        EXPECT_TRUE(std::isnan((*rest)[i])) << "element " << i << " was written";
    return out;
  }

 private:
  static Tensor tensor(Dtype storage, const Values& values) {
    return Tensor(Array(storage, {static_cast<std::int64_t>(values.size())}, values));
  }
  static Tensor place(const StridedCase& c, const StridedInputs& in, Dtype storage) {
    Values all = poison(c.qkv_elements);
    scatter(all, c.q_extents(), c.q, in.q);
    scatter(all, c.kv_extents(), c.k, in.k);
    scatter(all, c.kv_extents(), c.v, in.v);
    return tensor(storage, all);
  }
  static Tensor upstream(const StridedCase& c, const StridedInputs& in, Dtype storage) {
    Values all = poison(c.o_elements);
    scatter(all, c.q_extents(), c.o, in.d_o);
    return tensor(storage, all);
  }
  static Values values(Tensor& tensor) {
    if constexpr (requires { tensor.download(); })
      return tensor.download().values();
    else
      return tensor.values();
  }

  StridedCase c_;
  Tensor qkv_, o_, d_o_, gradient_, lse_, cu_seqlens_, seq_idx_, order_, room_;
};

/// The same numbers side by side, through the form with columns, on the host in fp64.
inline StridedResults dense_results(const StridedCase& c, const StridedInputs& in) {
  StridedCase dense = c;
  const std::int64_t p = c.shape.head_dim, q = c.shape.heads * p, kv = c.shape.kv_heads * p;
  const std::int64_t n = c.packed.tokens, width = q + 2 * kv;
  dense.shape.length = 0;
  dense.q = {0, {width, p}};
  dense.k = {q, {width, p}};
  dense.v = {q + kv, {width, p}};
  dense.qkv_elements = n * width;
  dense.o = {0, {q, p}};
  dense.o_elements = n * q;
  Values all(at(n * width));
  scatter(all, dense.q_extents(), dense.q, in.q);
  scatter(all, dense.kv_extents(), dense.k, in.k);
  scatter(all, dense.kv_extents(), dense.v, in.v);
  const Dtype type = Dtype::fp64;
  const Array qkv(type, {n, width}, all), d_o(type, {n, q}, in.d_o), o(type, {n, q});
  const Array lse(type, {c.shape.heads, n}), gradient(type, {n, width});
  const Array cu_seqlens = c.packed.cu_seqlens(), seq_idx = c.packed.seq_idx();
  const AttentionPair pair = dense.pair(type);
  const Array order = pair.order(), room = pair.room();
  on_queue([&](Queue& queue) {
    pair.run(queue, {.q = dense.q.in(qkv),
                     .k = dense.k.in(qkv),
                     .v = dense.v.in(qkv),
                     .o = dense.o.in(o),
                     .lse = lse,
                     .cu_seqlens = cu_seqlens,
                     .seq_idx = seq_idx,
                     .d_o = dense.o.in(d_o),
                     .dq = dense.q.in(gradient),
                     .dk = dense.k.in(gradient),
                     .dv = dense.v.in(gradient),
                     .order = order,
                     .room = room});
  });
  Values gradients = gradient.values();
  return {o.values(), lse.values(), take(gradients, dense.q_extents(), dense.q),
          take(gradients, dense.kv_extents(), dense.k),
          take(gradients, dense.kv_extents(), dense.v)};
}

/// Layouts that interleave what the dense one keeps apart, for a head dimension.
inline std::vector<StridedCase> strided_cases(std::int64_t p, bool causal) {
  const double scale = 1 / std::sqrt(static_cast<double>(p));
  std::vector<StridedCase> all;
  {  // (n, H, [q k v], P): one key-value head for each query head; o with gaps between heads
    const std::int64_t h = 3, n = 331;
    const HeadStrides s{3 * h * p, 3 * p};
    all.push_back({"q k v by head",
                   {h, h, p, causal, scale},
                   Packed({130, 1, 0, 200}),
                   {0, s},
                   {p, s},
                   {2 * p, s},
                   n * 3 * h * p,
                   {8, {h * (p + 8), p + 8}},
                   n * h * (p + 8) + 8});
  }
  {  // (n, K, [k v], P) behind (n, H, P); o head by head: (H, n, P)
    const std::int64_t h = 4, k = 2, n = 285;
    const HeadStrides s{2 * k * p, 2 * p};
    all.push_back({"k v by head",
                   {h, k, p, causal, scale},
                   Packed({150, 65, 70}),
                   {0, {h * p, p}},
                   {n * h * p, s},
                   {n * h * p + p, s},
                   n * (h + 2 * k) * p,
                   {0, {p, n * p}},
                   n * h * p});
  }
  const std::int64_t h = 4, k = 2, b = 3, t = 150, width = (h + 2 * k) * p;
  const Packed equal({t, t, t});
  AttentionShape shape{h, k, p, causal, scale};
  shape.length = t;
  {  // (B, T + 10, width): sequences padded
    const HeadStrides s{width, p, (t + 10) * width}, o{h * p, p, (t + 7) * h * p};
    all.push_back({"padded sequences",
                   shape,
                   equal,
                   {0, s},
                   {h * p, s},
                   {(h + k) * p, s},
                   b * (t + 10) * width,
                   {0, o},
                   b * (t + 7) * h * p});
  }
  {  // (T, B, width): sequences side by side; o (B, H, T, P)
    const HeadStrides s{b * width, p, width};
    all.push_back({"sequences inside tokens",
                   shape,
                   equal,
                   {0, s},
                   {h * p, s},
                   {(h + k) * p, s},
                   b * t * width,
                   {0, {p, t * p, h * t * p}},
                   b * t * h * p});
  }
  return all;
}

}  // namespace stowage::kernels::test
