#include <algorithm>
#include <cmath>
#include <cstring>

#include "drivers/bench_kernels/attention_cudnn.hpp"
#include "drivers/bench_kernels/attention_reference.hpp"
#include "drivers/bench_kernels/entries.hpp"
#include "kernels/attention/attention_cuda.hpp"

namespace stowage::drivers::bench {
namespace {

using execution::Dtype;

cudaStream_t stream(execution::Queue& queue) { return static_cast<cudaStream_t>(queue.stream()); }

// Without cuDNN's frontend the peer is listed as missing and never made.
#if STOWAGE_HAVE_CUDNN_FRONTEND
Implementation cudnn(const char* name) { return {name, CudnnAttention::version(), ""}; }
using Peer = CudnnAttention;
#else
Implementation cudnn(const char* name) {
  return {name, "", "the cuDNN frontend was not found (CUDNN_FRONTEND_DIR)"};
}
struct Peer {
  Peer(Gpu&, const CudnnAttentionSizes&, bool, bool) {}
  template <class... Operands>
  void forward(Operands&&...) {}
  template <class... Operands>
  void backward(Operands&&...) {}
};
#endif

/// B documents of T tokens; q, k and v are columns of one projection, as in a layer.
class AttentionCase : public Case {
 protected:
  AttentionCase(Gpu& gpu, const Shape& shape, std::int64_t seed)
      : documents_(shape["B"]),
        length_(shape["T"]),
        n_(documents_ * length_),
        h_(shape["H"]),
        k_(shape["K"]),
        p_(shape["P"]),
        causal_(shape["causal"] != 0),
        width_((h_ + 2 * k_) * p_),
        qkv_(gpu, "qkv", Role::input, Dtype::bf16, {n_, width_}),
        cu_seqlens_(gpu, "cu_seqlens", Role::input, Dtype::int32, {documents_ + 1}) {
    qkv_.fill_normal(seed, 0, 1);
    std::vector<std::int32_t> starts;
    for (std::int64_t i = 0; i <= documents_; ++i)
      starts.push_back(static_cast<std::int32_t>(i * length_));
    cu_seqlens_.upload(starts.data());
    sizes_.tokens = n_;
    sizes_.heads = static_cast<int>(h_);
    sizes_.kv_heads = static_cast<int>(k_);
    sizes_.head_dim = static_cast<int>(p_);
    sizes_.causal = causal_;
    sizes_.scale = static_cast<float>(1 / std::sqrt(static_cast<double>(p_)));
    sizes_.documents = static_cast<int>(documents_);
    sizes_.uniform_length = length_;
    sizes_.q_stride = sizes_.k_stride = sizes_.v_stride = width_;
    sizes_.o_stride = h_ * p_;
    operands = {&qkv_, &cu_seqlens_};
  }

  /// 2 products forward, 5 backward, over the pairs that are not masked.
  execution::Cost cost_of(int products, double matrices) const {
    const double t = static_cast<double>(length_);
    const double pairs = static_cast<double>(documents_) * (causal_ ? t * (t + 1) / 2 : t * t);
    return {2 * products * pairs * static_cast<double>(h_ * p_),
            2 * matrices * static_cast<double>(n_ * p_)};
  }

  CudnnAttentionSizes peer_sizes() const {
    return {documents_, length_, h_, k_, p_, width_, causal_};
  }

  const execution::Bf16* q() const { return qkv_.as<execution::Bf16>(); }
  const execution::Bf16* k() const { return q() + h_ * p_; }
  const execution::Bf16* v() const { return k() + k_ * p_; }

  /// Query head 0's group in document 0, in fp64.
  AttentionReference reference() const {
    const std::int64_t group = h_ / k_;
    AttentionReference made{.length = length_, .heads = group, .head_dim = p_, .causal = causal_};
    made.q = head_rows(qkv_, 0, group * p_);
    made.k = head_rows(qkv_, h_ * p_, p_);
    made.v = head_rows(qkv_, (h_ + k_) * p_, p_);
    return made;
  }

  /// Columns of the rows of document 0.
  std::vector<double> head_rows(const Operand& operand, std::int64_t first,
                                std::int64_t count) const {
    const std::int64_t width = operand.elements() / operand.shape().front();
    const std::vector<double> all = operand.rows(0, length_);
    std::vector<double> values;
    values.reserve(static_cast<std::size_t>(length_ * count));
    for (std::int64_t row = 0; row < length_; ++row) {
      const auto at = all.begin() + row * width + first;
      values.insert(values.end(), at, at + count);
    }
    return values;
  }

  std::int64_t documents_, length_, n_, h_, k_, p_;
  bool causal_;
  std::int64_t width_;
  Operand qkv_, cu_seqlens_;
  kernels::AttentionLayout sizes_;
};

class AttentionForwardCase final : public AttentionCase {
 public:
  AttentionForwardCase(Gpu& gpu, const Shape& shape, std::int64_t seed)
      : AttentionCase(gpu, shape, seed),
        o_(gpu, "o", Role::output, Dtype::bf16, {n_, h_ * p_}),
        lse_(gpu, "lse", Role::output, Dtype::fp32, {h_, n_}),
        workspace_(gpu.device_memory(kernels::attention_forward_cuda_workspace_bytes(sizes_))),
        peer_(gpu, peer_sizes(), false, false) {
    operands.insert(operands.end(), {&o_, &lse_});
    args_.q = q();
    args_.k = k();
    args_.v = v();
    args_.o = o_.data();
    args_.lse = lse_.as<float>();
    args_.cu_seqlens = cu_seqlens_.as<int>();
    args_.workspace = workspace_->data();
  }

  execution::Cost cost() const override { return cost_of(2, static_cast<double>(2 * h_ + 2 * k_)); }
  void enqueue(const std::string& implementation, execution::Queue& queue) override {
    if (implementation == "cudnn")
      peer_.forward(queue, q(), k(), v(), o_.data());
    else
      kernels::attention_forward_cuda(sizes_, args_, stream(queue));
  }

  // Probabilities are rounded to bf16 before the second product, o after it; lse stays fp32, whose
  // scores carry the rounding of exp2 and of sums of up to T terms.
  std::vector<Agreement> check(const std::string& implementation) override {
    const AttentionReference reference_values = reference();
    const std::vector<double> o = head_rows(o_, 0, reference_values.heads * p_);
    const std::vector<double> lse = lse_.rows(0, reference_values.heads);
    std::vector<double> out, out_lse, ref, ref_lse;
    for (const AttentionSample& sample : reference_values.samples()) {
      const AttentionRow row = reference_values.row(sample);
      const auto at = o.begin() + (sample.row * reference_values.heads + sample.head) * p_;
      out.insert(out.end(), at, at + p_);
      ref.insert(ref.end(), row.o.begin(), row.o.end());
      out_lse.push_back(lse[static_cast<std::size_t>(sample.head * n_ + sample.row)]);
      ref_lse.push_back(row.lse);
    }
    const Agreement o_agrees = {"o", relative_error(out, ref), 2 * execution::epsilon(Dtype::bf16)};
    if (implementation == "cudnn") return {o_agrees};  // it keeps a log-sum-exp of its own
    return {o_agrees, {"lse", relative_error(out_lse, ref_lse), 1e-5}};
  }

 private:
  Operand o_, lse_;
  std::unique_ptr<execution::Arena> workspace_;
  Peer peer_;
  kernels::AttentionForwardPointers args_;
};

class AttentionBackwardCase final : public AttentionCase {
 public:
  AttentionBackwardCase(Gpu& gpu, const Shape& shape, std::int64_t seed)
      : AttentionCase(gpu, shape, seed),
        o_(gpu, "o", Role::input, Dtype::bf16, {n_, h_ * p_}),
        lse_(gpu, "lse", Role::input, Dtype::fp32, {h_, n_}),
        d_o_(gpu, "do", Role::input, Dtype::bf16, {n_, h_ * p_}),
        dqkv_(gpu, "dqkv", Role::output, Dtype::bf16, {n_, width_}),
        workspace_(
            gpu.device_memory(std::max(kernels::attention_forward_cuda_workspace_bytes(sizes_),
                                       kernels::attention_backward_cuda_workspace_bytes(sizes_)))),
        peer_(gpu, peer_sizes(), true, false),
        deterministic_peer_(gpu, peer_sizes(), true, true) {
    d_o_.fill_normal(seed, 0, 1);
    operands.insert(operands.end(), {&o_, &lse_, &d_o_, &dqkv_});
    kernels::AttentionForwardPointers forward;
    forward.q = args_.q = q();
    forward.k = args_.k = k();
    forward.v = args_.v = v();
    forward.cu_seqlens = args_.cu_seqlens = cu_seqlens_.as<int>();
    forward.workspace = args_.workspace = workspace_->data();
    forward.o = o_.data();
    forward.lse = lse_.as<float>();
    args_.o = o_.data();
    args_.lse = lse_.as<float>();
    args_.d_o = d_o_.data();
    args_.dq = dqkv_.data();
    args_.dk = dqkv_.as<execution::Bf16>() + h_ * p_;
    args_.dv = dqkv_.as<execution::Bf16>() + (h_ + k_) * p_;
    for (Peer* peer : {&peer_, &deterministic_peer_})
      peer->forward(gpu.queue(), q(), k(), v(), o_.data());
    kernels::attention_forward_cuda(sizes_, forward, stream(gpu.queue()));
    gpu.queue().synchronize();
  }

  execution::Cost cost() const override { return cost_of(5, static_cast<double>(4 * h_ + 4 * k_)); }
  void enqueue(const std::string& implementation, execution::Queue& queue) override {
    if (implementation == "ours")
      kernels::attention_backward_cuda(sizes_, args_, stream(queue));
    else
      (implementation == "cudnn" ? peer_ : deterministic_peer_)
          .backward(queue, q(), k(), v(), o_.data(), d_o_.data(), args_.dq, args_.dk, args_.dv);
  }

  // Two roundings to bf16 (P or dS, and the gradient) on top of those of o.
  std::vector<Agreement> check(const std::string&) override {
    AttentionReference reference_values = reference();
    reference_values.o = head_rows(o_, 0, reference_values.heads * p_);
    reference_values.d_o = head_rows(d_o_, 0, reference_values.heads * p_);
    reference_values.lse.clear();
    const std::vector<double> lse = lse_.rows(0, reference_values.heads);
    for (std::int64_t head = 0; head < reference_values.heads; ++head)
      reference_values.lse.insert(reference_values.lse.end(), lse.begin() + head * n_,
                                  lse.begin() + head * n_ + length_);
    const std::vector<double> dq = head_rows(dqkv_, 0, reference_values.heads * p_);
    const std::vector<double> dk = head_rows(dqkv_, h_ * p_, p_);
    const std::vector<double> dv = head_rows(dqkv_, (h_ + k_) * p_, p_);
    std::vector<double> out_q, ref_q, out_k, ref_k, out_v, ref_v;
    const auto append = [](std::vector<double>& to, const std::vector<double>& from,
                           std::int64_t first, std::int64_t count) {
      to.insert(to.end(), from.begin() + first, from.begin() + first + count);
    };
    for (const AttentionSample& sample : reference_values.samples()) {
      append(out_q, dq, (sample.row * reference_values.heads + sample.head) * p_, p_);
      append(ref_q, reference_values.dq(sample), 0, p_);
    }
    for (const std::int64_t key : reference_values.sampled_keys()) {
      const AttentionKeyGradient gradient = reference_values.dk_dv(key);
      append(out_k, dk, key * p_, p_);
      append(ref_k, gradient.dk, 0, p_);
      append(out_v, dv, key * p_, p_);
      append(ref_v, gradient.dv, 0, p_);
    }
    const double tolerance = 3 * execution::epsilon(Dtype::bf16);
    return {{"dq", relative_error(out_q, ref_q), tolerance},
            {"dk", relative_error(out_k, ref_k), tolerance},
            {"dv", relative_error(out_v, ref_v), tolerance}};
  }

 private:
  Operand o_, lse_, d_o_, dqkv_;
  std::unique_ptr<execution::Arena> workspace_;
  Peer peer_, deterministic_peer_;
  kernels::AttentionBackwardPointers args_;
};

Shape sizes(std::int64_t documents, std::int64_t length) {
  return Shape{{"B", documents}, {"T", length}, {"H", 32}, {"K", 8}, {"P", 128}, {"causal", 1}};
}

template <class Direction>
Entry entry(const char* name, const char* help, std::vector<Implementation> implementations) {
  return {.name = name,
          .help = help,
          .shapes = {sizes(4, 4096), sizes(2, 8192), sizes(1, 16384)},
          .implementations = std::move(implementations),
          .make = [](Gpu& gpu, const Shape& shape, std::int64_t seed) -> std::unique_ptr<Case> {
            return std::make_unique<Direction>(gpu, shape, seed);
          }};
}

}  // namespace

Entry attention_forward_entry() {
  return entry<AttentionForwardCase>(
      "attention_forward", "o and lse of grouped-query attention, B documents of T tokens",
      {{"ours", "", ""}, cudnn("cudnn")});
}

Entry attention_backward_entry() {
  return entry<AttentionBackwardCase>(
      "attention_backward", "dq, dk, dv of attention_forward",
      {{"ours", "", ""}, cudnn("cudnn"), cudnn("cudnn_deterministic")});
}

}  // namespace stowage::drivers::bench
