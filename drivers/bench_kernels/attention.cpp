#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>
#include <type_traits>

#include "drivers/bench_kernels/attention_case.hpp"
#include "drivers/bench_kernels/attention_cudnn.hpp"
#include "drivers/bench_kernels/entries.hpp"
#include "execution/error.hpp"

namespace stowage::drivers::bench {
namespace {

using execution::Dtype;

cudaStream_t stream(execution::Queue& queue) { return static_cast<cudaStream_t>(queue.stream()); }

// Without cuDNN's frontend the peer is listed as missing and never made.
#if STOWAGE_HAVE_CUDNN_FRONTEND
Implementation cudnn(const char* name) {
  const bool any = name == std::string("cudnn");
  return {name, CudnnAttention::version(), "", any ? "its own choice" : "deterministic"};
}
using Peer = CudnnAttention;
constexpr bool has_peer() { return true; }
#else
Implementation cudnn(const char* name) {
  return {name, "", "the cuDNN frontend was not found (CUDNN_FRONTEND_DIR)"};
}
struct Peer {
  Peer(run::Gpu&, const CudnnAttentionSizes&, bool, bool) {}
  template <class... Operands>
  void forward(Operands&&...) {}
  template <class... Operands>
  void backward(Operands&&...) {}
};
constexpr bool has_peer() { return false; }
#endif

using Lengths = std::vector<std::int64_t>;

/// Sizes for cuDNN, which takes documents of one length here.
CudnnAttentionSizes peer_sizes(const Shape& shape) {
  const std::int64_t row = (shape["H"] + 2 * shape["K"]) * shape["P"];
  return {shape["B"], shape["T"], shape["H"], shape["K"], shape["P"], row, shape["causal"] != 0};
}

/// Elements [first, first + count), each over `size`.
void append(std::vector<double>& to, const std::vector<double>& from, std::int64_t first,
            std::int64_t count, double size = 1) {
  for (std::int64_t i = first; i < first + count; ++i) to.push_back(from[i] / size);
}

double norm(const std::vector<double>& values) {
  return std::sqrt(std::inner_product(values.begin(), values.end(), values.begin(), 0.0));
}

/// "72 of 65536 rows": of the query heads of one key head.
std::string sampled(const AttentionReference& expected, const char* what) {
  return some_of(static_cast<std::int64_t>(expected.samples().size()),
                 expected.heads * expected.length, what);
}

class AttentionForwardCase final : public AttentionCase {
 public:
  AttentionForwardCase(run::Gpu& gpu, const Shape& shape, std::int64_t seed, const Lengths& lengths,
                       bool with_peer)
      : AttentionCase(gpu, shape, seed, lengths),
        o_(gpu, "o", Role::output, Dtype::bf16, {n_, h_ * p_}),
        lse_(gpu, "lse", Role::output, Dtype::fp32, {h_, n_}),
        workspace_(gpu.device_memory(kernels::attention_forward_cuda_workspace_bytes(layout_))) {
    if (with_peer) peer_.emplace(gpu, peer_sizes(shape), false, false);
    operands.insert(operands.end(), {&o_, &lse_});
    args_.q = q();
    args_.k = k();
    args_.v = v();
    args_.o = o_.data();
    args_.lse = lse_.as<float>();
    args_.cu_seqlens = cu_seqlens_.as<int>();
    args_.workspace = workspace_->data();
  }

  execution::Cost cost() const override { return declared<kernels::AttentionForward>().cost(); }
  void enqueue(const std::string& implementation, execution::Queue& queue) override {
    if (implementation == "cudnn")
      peer_->forward(queue, q(), k(), v(), o_.data());
    else
      kernels::attention_forward_cuda(layout_, args_, stream(queue));
  }

  // Probabilities are rounded to bf16 before the second product, o after it; lse stays fp32, whose
  // scores carry the rounding of exp2 and of sums of up to T terms.
  std::vector<Agreement> check(const std::string& implementation) override {
    const AttentionReference expected = reference();
    const std::vector<double> o = document_rows(o_, 0, expected.heads * p_);
    std::vector<double> out, out_lse, ref, ref_lse;
    for (const AttentionSample& sample : expected.samples()) {
      const AttentionRow row = expected.row(sample);
      // Early rows are sums of few keys and large: without their norm the others would not count.
      const double size = norm(row.o);
      append(out, o, (sample.row * expected.heads + sample.head) * p_, p_, size);
      append(ref, row.o, 0, p_, size);
      append(out_lse, document_lse(lse_, sample.head), sample.row, 1);
      ref_lse.push_back(row.lse);
    }
    std::vector<Agreement> found;
    const std::string over = sampled(expected, "rows, each over its norm");
    compare(found, implementation, "o", out, ref, 2 * execution::epsilon(Dtype::bf16), over);
    // Of a score: half a unit of fp32 for each step of 16 products (agreement.hpp), and its own.
    if (implementation != "cudnn")  // it keeps a log-sum-exp of its own
      compare(found, implementation, "lse", out_lse, ref_lse,
              execution::epsilon(Dtype::fp32) * (static_cast<double>(p_) / 32 + 1),
              sampled(expected, "rows"));
    return found;
  }

 private:
  Operand o_, lse_;
  std::unique_ptr<execution::Arena> workspace_;
  std::optional<Peer> peer_;
  kernels::AttentionForwardPointers args_;
};

kernels::QueryGradient way_of(std::int64_t way) {
  using kernels::QueryGradient;
  constexpr QueryGradient kWays[] = {QueryGradient::by_shape, QueryGradient::stored,
                                     QueryGradient::inside};
  if (way < 0 || way > 2) {
    throw execution::Error(
        execution::Exit::usage,
        fmt::format("way {} is not 0 (by shape), 1 (stored) or 2 (inside)", way));
  }
  return kWays[way];
}

class AttentionBackwardCase final : public AttentionCase {
 public:
  AttentionBackwardCase(run::Gpu& gpu, const Shape& shape, std::int64_t seed,
                        const Lengths& lengths, bool with_peer)
      : AttentionCase(gpu, shape, seed, lengths),
        o_(gpu, "o", Role::input, Dtype::bf16, {n_, h_ * p_}),
        lse_(gpu, "lse", Role::input, Dtype::fp32, {h_, n_}),
        d_o_(gpu, "do", Role::input, Dtype::bf16, {n_, h_ * p_}),
        dqkv_(gpu, "dqkv", Role::output, Dtype::bf16, {n_, width_}),
        workspace_(gpu.device_memory(workspace_bytes(shape))) {
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
    if (with_peer) {
      peer_.emplace(gpu, peer_sizes(shape), true, false);
      deterministic_peer_.emplace(gpu, peer_sizes(shape), true, true);
      for (auto* peer : {&peer_, &deterministic_peer_})
        (*peer)->forward(gpu.queue(), q(), k(), v(), o_.data());
    }
    kernels::attention_forward_cuda(layout_, forward, stream(gpu.queue()));
    gpu.queue().synchronize();
  }

  execution::Cost cost() const override { return declared<kernels::AttentionBackward>().cost(); }
  void enqueue(const std::string& implementation, execution::Queue& queue) override {
    if (implementation == "ours")
      kernels::attention_backward_cuda(layout_, args_, stream(queue));
    else
      (implementation == "cudnn" ? peer_ : deterministic_peer_)
          ->backward(queue, q(), k(), v(), o_.data(), d_o_.data(), args_.dq, args_.dk, args_.dv);
  }

  // Two roundings to bf16 (P or dS, and the gradient). The reference takes o and lse as both
  // implementations are given them, our forward's, which its own benchmark compares: o's rounding
  // alone moves dq by per cents where scores are large, whoever computes it.
  std::vector<Agreement> check(const std::string& implementation) override {
    AttentionReference expected = reference();
    expected.o = document_rows(o_, 0, expected.heads * p_);
    expected.d_o = document_rows(d_o_, 0, expected.heads * p_);
    for (std::int64_t head = 0; head < expected.heads; ++head) {
      const std::vector<double> lse = document_lse(lse_, head);
      expected.lse.insert(expected.lse.end(), lse.begin(), lse.end());
    }
    const std::vector<double> dq = document_rows(dqkv_, 0, expected.heads * p_);
    const std::vector<double> dk = document_rows(dqkv_, h_ * p_, p_);
    const std::vector<double> dv = document_rows(dqkv_, (h_ + k_) * p_, p_);
    std::vector<double> out_q, ref_q, out_k, ref_k, out_v, ref_v;
    for (const AttentionSample& sample : expected.samples()) {
      append(out_q, dq, (sample.row * expected.heads + sample.head) * p_, p_);
      append(ref_q, expected.dq(sample), 0, p_);
    }
    for (const std::int64_t key : expected.sampled_keys()) {
      const AttentionKeyGradient gradient = expected.dk_dv(key);
      append(out_k, dk, key * p_, p_);
      append(ref_k, gradient.dk, 0, p_);
      append(out_v, dv, key * p_, p_);
      append(ref_v, gradient.dv, 0, p_);
    }
    const double tolerance = 3 * execution::epsilon(Dtype::bf16);
    std::vector<Agreement> found;
    const std::string keys = fmt::format("{} of {} keys of one key head",
                                         expected.sampled_keys().size(), expected.length);
    compare(found, implementation, "dq", out_q, ref_q, tolerance, sampled(expected, "rows"));
    compare(found, implementation, "dk", out_k, ref_k, tolerance, keys);
    compare(found, implementation, "dv", out_v, ref_v, tolerance, keys);
    return found;
  }

 private:
  // Of both directions; room_mib limits the score gradients that the backward keeps, way says how
  // it makes dq.
  std::size_t workspace_bytes(const Shape& shape) {
    if (shape["room_mib"] > 0) layout_.stored_limit_bytes = shape["room_mib"] << 20;
    layout_.query_gradient = way_of(shape["way"]);
    if (layout_.query_gradient == kernels::QueryGradient::inside &&
        !kernels::attention::make_room(layout_, true).inside) {
      throw execution::Error(
          execution::Exit::usage,
          fmt::format("way 2 (inside) is one of heads of 64 and 128, not of P = {}", p_));
    }
    return std::max(kernels::attention_forward_cuda_workspace_bytes(layout_),
                    kernels::attention_backward_cuda_workspace_bytes(layout_));
  }

  Operand o_, lse_, d_o_, dqkv_;
  std::unique_ptr<execution::Arena> workspace_;
  std::optional<Peer> peer_, deterministic_peer_;
  kernels::AttentionBackwardPointers args_;
};

/// The backward has two sizes more: the room for score gradients, 0 for what the kernels ask for,
/// and the way of dq, 0 for what they choose.
template <class Direction>
constexpr bool has_room() {
  return std::is_same_v<Direction, AttentionBackwardCase>;
}

template <class Direction>
Shape sizes(std::int64_t documents, std::int64_t length, std::int64_t heads, std::int64_t kv_heads,
            std::int64_t head_dim, std::int64_t large = 0) {
  if constexpr (has_room<Direction>())
    return Shape{{"B", documents}, {"T", length},   {"H", heads},
                 {"K", kv_heads},  {"P", head_dim}, {"causal", 1},
                 {"large", large}, {"room_mib", 0}, {"way", 0}};
  else
    return Shape{{"B", documents}, {"T", length}, {"H", heads},    {"K", kv_heads},
                 {"P", head_dim},  {"causal", 1}, {"large", large}};
}

template <class Direction>
Shape packed_sizes() {
  if constexpr (has_room<Direction>())
    return Shape{{"H", 32},    {"K", 32},       {"P", 128}, {"causal", 1},
                 {"large", 0}, {"room_mib", 0}, {"way", 0}};
  else
    return Shape{{"H", 32}, {"K", 32}, {"P", 128}, {"causal", 1}, {"large", 0}};
}

template <class Direction>
Entry entry(const char* name, const char* help, std::vector<Implementation> implementations) {
  return {
      .name = name,
      .help = help,
      .shapes = {sizes<Direction>(4, 4096, 32, 8, 128), sizes<Direction>(2, 8192, 32, 8, 128),
                 sizes<Direction>(1, 16384, 32, 8, 128), sizes<Direction>(2, 8192, 32, 32, 64),
                 sizes<Direction>(32, 1024, 12, 12, 64), sizes<Direction>(1, 4096, 32, 8, 128, 1),
                 sizes<Direction>(1, 16384, 16, 2, 256), sizes<Direction>(4, 4096, 16, 2, 256)},
      .implementations = std::move(implementations),
      .make = [](run::Gpu& gpu, const Shape& shape, std::int64_t seed) -> std::unique_ptr<Case> {
        const Lengths lengths(static_cast<std::size_t>(shape["B"]), shape["T"]);
        return std::make_unique<Direction>(gpu, shape, seed, lengths, has_peer());
      }};
}

// Their peers are other programs: results/tools/peers/attention_varlen.py and attention_flash4.py.
template <class Direction>
Entry packed_entry(const char* name, const char* help) {
  return {
      .name = name,
      .help = help,
      .shapes = {packed_sizes<Direction>()},
      .implementations = {{"ours", "", ""}},
      .make = [](run::Gpu& gpu, const Shape& shape, std::int64_t seed) -> std::unique_ptr<Case> {
        return std::make_unique<Direction>(gpu, shape, seed, packed_document_lengths(), false);
      }};
}

}  // namespace

Entry attention_forward_entry() {
  return entry<AttentionForwardCase>("attention_forward",
                                     "o and lse of grouped-query attention, B documents of T "
                                     "tokens; large=1: scores of some hundreds",
                                     {{"ours", "", ""}, cudnn("cudnn")});
}

Entry attention_backward_entry() {
  return entry<AttentionBackwardCase>(
      "attention_backward",
      "dq, dk, dv of attention_forward; way: how dq is made, 1: from stored dS, 2: added up inside",
      {{"ours", "", ""}, cudnn("cudnn"), cudnn("cudnn_deterministic")});
}

Entry attention_packed_forward_entry() {
  return packed_entry<AttentionForwardCase>(
      "attention_packed_forward", "attention_forward in 161 documents of 65536 tokens together");
}

Entry attention_packed_backward_entry() {
  return packed_entry<AttentionBackwardCase>("attention_packed_backward",
                                             "dq, dk, dv of attention_packed_forward");
}

}  // namespace stowage::drivers::bench
