#pragma once

#include <cuda_runtime_api.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <memory>
#include <vector>

#include "ctest/kernels/attention_run.hpp"
#include "ctest/kernels/need_gpu.hpp"
#include "execution/cuda_backend.hpp"
#include "kernels/attention/attention_cuda.hpp"
#include "kernels/elementwise/elementwise.hpp"

/// What the GPU tests of attention share: a problem with its tensors on the device, run there
/// through the queue form or the launchers, and its results from the host in fp64.
namespace stowage::kernels::test {

/// An array and as many bytes of device memory.
class DeviceArray {
 public:
  explicit DeviceArray(Array host) : host_(std::move(host)), info_(*host_.view().info) {
    EXPECT_EQ(cudaMalloc(&address_, bytes() + 16), cudaSuccess);
    upload();
  }
  DeviceArray(const DeviceArray&) = delete;
  DeviceArray& operator=(const DeviceArray&) = delete;
  ~DeviceArray() { cudaFree(address_); }

  void upload() { copy(address_, host_address(), cudaMemcpyHostToDevice); }
  Array download() {
    copy(host_address(), address_, cudaMemcpyDeviceToHost);
    return host_;
  }
  void poison(Queue& queue) {
    EXPECT_EQ(cudaMemsetAsync(address_, 0xff, bytes(), static_cast<cudaStream_t>(queue.stream())),
              cudaSuccess);
  }
  void set(const Values& values) {
    host_.set(values);
    upload();
  }

  View view() const { return {std::span(&address_, 1), &info_}; }
  operator View() const { return view(); }
  template <class T>
  T* as() const {
    return static_cast<T*>(address_);
  }
  std::size_t bytes() const { return info_.bytes(); }

 private:
  void* host_address() const { return host_.view().data[0]; }
  void copy(void* to, const void* from, cudaMemcpyKind kind) const {
    EXPECT_EQ(cudaMemcpy(to, from, bytes(), kind), cudaSuccess);
    EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  }

  Array host_;
  execution::TensorInfo info_;
  void* address_ = nullptr;
};

struct AttentionCase {
  AttentionShape shape;
  Packed packed;
  Dtype storage = Dtype::bf16;
  std::int64_t before = 0;  ///< columns in front of q, k and v in their tensor

  std::int64_t q() const { return shape.heads * shape.head_dim; }
  std::int64_t kv() const { return shape.kv_heads * shape.head_dim; }
  std::int64_t k_first() const { return before + q(); }
  std::int64_t v_first() const { return before + q() + kv(); }
  std::int64_t width() const { return before + q() + 2 * kv(); }
  AttentionPair pair(Dtype dtype) const { return {shape, packed, dtype}; }
  AttentionTensors tensors(const View& qkv, const View& cu_seqlens, const View& seq_idx,
                           const View& o, const View& lse, const View& d_o, const View& gradient,
                           const View& order, const View& room) const {
    const auto in = [&](const View& all, std::int64_t first) {
      return heads(all, shape.head_dim, first);
    };
    return {.q = in(qkv, before),
            .k = in(qkv, k_first()),
            .v = in(qkv, v_first()),
            .o = in(o, 0),
            .lse = lse,
            .cu_seqlens = cu_seqlens,
            .seq_idx = seq_idx,
            .d_o = in(d_o, 0),
            .dq = in(gradient, before),
            .dk = in(gradient, k_first()),
            .dv = in(gradient, v_first()),
            .order = order,
            .room = room};
  }
};

inline AttentionShape attention_shape(std::int64_t heads, std::int64_t kv_heads,
                                      std::int64_t head_dim, bool causal = true) {
  return {heads, kv_heads, head_dim, causal, 1 / std::sqrt(static_cast<double>(head_dim))};
}

/// The layout of a case, as the queue form makes it.
inline AttentionLayout layout_of(const AttentionCase& c) {
  AttentionLayout layout;
  layout.storage = c.storage;
  layout.tokens = c.packed.tokens;
  layout.heads = static_cast<int>(c.shape.heads);
  layout.kv_heads = static_cast<int>(c.shape.kv_heads);
  layout.head_dim = static_cast<int>(c.shape.head_dim);
  layout.causal = c.shape.causal;
  layout.scale = static_cast<float>(c.shape.scale);
  layout.documents = static_cast<int>(c.packed.documents());
  layout.pairs = c.shape.pairs;
  layout.query_gradient = c.shape.query_gradient;
  layout.q = layout.k = layout.v = layout.dq = layout.dk =
      layout.dv = {c.width(), c.shape.head_dim};
  layout.o = layout.d_o = {c.q(), c.shape.head_dim};
  return layout;
}

/// Tiles of keys that a launch over `kv_heads` takes in pieces, as the device counts them.
inline std::int64_t tiles_in_pieces(const std::vector<std::int64_t>& lengths, int kv_heads,
                                    int heads_per_kv) {
  std::int64_t longest = 0, work = 0, count = 0;
  for (const std::int64_t length : lengths) {
    const std::int64_t tiles = (length + 127) / 128;
    longest = std::max(longest, tiles);
    work += tiles * (tiles + 1) / 2;
  }
  const std::int64_t least = attention::least_in_pieces(work, longest, kv_heads, heads_per_kv);
  for (const std::int64_t length : lengths)
    count += std::max<std::int64_t>(0, (length + 127) / 128 - least + 1);
  return count * kv_heads;
}

/// The ways of dq that the backward of a head dimension and storage has.
inline std::vector<QueryGradient> ways_of(std::int64_t head_dim, Dtype storage = Dtype::bf16) {
  if (storage != Dtype::bf16 || (head_dim != 64 && head_dim != 128)) {
    return {QueryGradient::by_shape};
  }
  return {QueryGradient::stored, QueryGradient::inside};
}

/// o, lse, and dq | dk | dv as they lie in one tensor.
struct AttentionResults {
  Values o, lse, gradient;
};

/// Inputs as rounded to the storage type, and the results of the host in fp64 from them.
class AttentionProblem {
 public:
  AttentionProblem(Random& random, AttentionCase c, double deviation = 1)
      : c_(std::move(c)),
        n_(c_.packed.tokens),
        qkv_(rounded(random.normal(n_ * c_.width(), deviation), c_.storage)),
        d_o_(rounded(random.normal(n_ * c_.q()), c_.storage)) {}

  const AttentionCase& at() const { return c_; }
  void set_way(QueryGradient way) { c_.shape.query_gradient = way; }
  std::int64_t tokens() const { return n_; }
  Array qkv(Dtype dtype) const { return {dtype, {n_, c_.width()}, qkv_}; }
  Array d_o(Dtype dtype) const { return {dtype, {n_, c_.q()}, d_o_}; }

  AttentionResults on_host() const {
    const Dtype type = Dtype::fp64;
    const Array qkv = this->qkv(type), d_o = this->d_o(type), cu_seqlens = c_.packed.cu_seqlens();
    const Array seq_idx = c_.packed.seq_idx(), o(type, {n_, c_.q()}),
                lse(type, {c_.shape.heads, n_});
    const Array gradient(type, {n_, c_.width()});
    const AttentionPair pair = c_.pair(type);
    const Array order = pair.order(), room = pair.room();
    on_queue([&](Queue& queue) {
      pair.run(queue, c_.tensors(qkv, cu_seqlens, seq_idx, o, lse, d_o, gradient, order, room));
    });
    return {o.values(), lse.values(), columns_of(gradient, c_.before, c_.width() - c_.before)};
  }

 private:
  AttentionCase c_;
  std::int64_t n_;
  Values qkv_, d_o_;
};

/// The tensors of a problem on the device; outputs and workspaces begin as NaN.
class DeviceAttention {
 public:
  explicit DeviceAttention(const AttentionProblem& problem, std::size_t room_bytes = 0)
      : c_(problem.at()),
        n_(problem.tokens()),
        qkv_(problem.qkv(c_.storage)),
        d_o_(problem.d_o(c_.storage)),
        cu_seqlens_(c_.packed.cu_seqlens()),
        seq_idx_(c_.packed.seq_idx()),
        o_(Array(c_.storage, {n_, c_.q()})),
        lse_(Array(Dtype::fp32, {c_.shape.heads, n_})),
        gradient_(Array(c_.storage, {n_, c_.width()})),
        order_(c_.pair(c_.storage).order()),
        room_(workspace(std::max<std::size_t>(room_bytes == 0 ? 1 : room_bytes,
                                              c_.pair(c_.storage).backward.workspace_bytes()))) {}

  void forward(Queue& queue) { c_.pair(c_.storage).run_forward(queue, tensors()); }
  void backward(Queue& queue) { c_.pair(c_.storage).run_backward(queue, tensors()); }

  /// Both by the launchers, for a layout that the queue form does not make: `change` edits it.
  template <class Change>
  void launch(Queue& queue, Change&& change) {
    AttentionLayout layout = layout_of(c_);
    change(layout);
    ASSERT_LE(attention_backward_cuda_workspace_bytes(layout), room_.bytes());
    const auto* qkv = qkv_.as<execution::Bf16>();
    auto* gradient = gradient_.as<execution::Bf16>();
    const auto stream = static_cast<cudaStream_t>(queue.stream());
    attention_forward_cuda(layout,
                           {qkv + c_.before, qkv + c_.k_first(), qkv + c_.v_first(), o_.as<void>(),
                            lse_.as<float>(), cu_seqlens_.as<int>(), order_.as<void>()},
                           stream);
    attention_backward_cuda(
        layout,
        {d_o_.as<void>(), qkv + c_.before, qkv + c_.k_first(), qkv + c_.v_first(), o_.as<void>(),
         lse_.as<float>(), cu_seqlens_.as<int>(), gradient + c_.before, gradient + c_.k_first(),
         gradient + c_.v_first(), room_.as<void>()},
        stream);
  }

  /// All results.
  std::array<View, 3> outputs() const { return {o_.view(), lse_.view(), gradient_.view()}; }

  void poison(Queue& queue) {
    for (DeviceArray* array : {&o_, &lse_, &gradient_, &order_, &room_}) array->poison(queue);
  }
  /// Other documents of the same capacity, in the tensors that a captured graph reads.
  void set_documents(const Packed& packed) {
    cu_seqlens_.set(Values(packed.starts.begin(), packed.starts.end()));
    seq_idx_.set(Values(packed.document.begin(), packed.document.end()));
  }

  AttentionResults results() {
    return {o_.download().values(), lse_.download().values(),
            columns_of(gradient_.download(), c_.before, c_.width() - c_.before)};
  }

 private:
  AttentionTensors tensors() const {
    return c_.tensors(qkv_, cu_seqlens_, seq_idx_, o_, lse_, d_o_, gradient_, order_, room_);
  }

  AttentionCase c_;
  std::int64_t n_;
  DeviceArray qkv_, d_o_, cu_seqlens_, seq_idx_, o_, lse_, gradient_, order_, room_;
};

/// A backend and its compute queue.
struct Gpu {
  std::unique_ptr<execution::Backend> backend = execution::make_cuda_backend();
  std::unique_ptr<Queue> queue = backend->make_queue(execution::Lane::compute, "attention");
};

}  // namespace stowage::kernels::test
