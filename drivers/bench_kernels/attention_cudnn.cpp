// The one file that includes cuDNN's frontend.
#include "drivers/bench_kernels/attention_cudnn.hpp"

#define CUDNN_FRONTEND_SKIP_JSON_LIB
#include <cudnn_frontend.h>
#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <source_location>
#include <unordered_map>

#include "execution/error.hpp"

namespace stowage::drivers::bench {
namespace {

namespace fe = cudnn_frontend;

enum Uid : std::int64_t { kQ = 1, kK, kV, kO, kStats, kGradO, kGradQ, kGradK, kGradV };

using Tensor = std::shared_ptr<fe::graph::Tensor_attributes>;
using Shape4 = std::vector<std::int64_t>;

void check(cudnnStatus_t code, const char* call) {
  if (code != CUDNN_STATUS_SUCCESS)
    execution::throw_call_failed("cuDNN", call, static_cast<long long>(code),
                                 cudnnGetErrorString(code), std::source_location::current());
}

void check(fe::error_t status, const char* call) {
  if (status.is_bad())
    execution::throw_call_failed("cuDNN", call, static_cast<long long>(status.code),
                                 status.get_message(), std::source_location::current());
}

void* writable(const void* data) { return const_cast<void*>(data); }

}  // namespace

struct CudnnAttention::State {
  CudnnAttentionSizes sizes;
  cudnnHandle_t handle = nullptr;
  fe::graph::Graph forward, backward;
  std::unique_ptr<execution::Arena> stats, workspace;

  ~State() {
    if (handle != nullptr) (void)cudnnDestroy(handle);
  }

  Shape4 dims(std::int64_t heads) const {
    return {sizes.documents, heads, sizes.length, sizes.head_dim};
  }
  /// (B, heads, T, P) that lies in memory as (B, T, row).
  Shape4 strides(std::int64_t row) const { return {sizes.length * row, sizes.head_dim, row, 1}; }
  std::int64_t dense() const { return sizes.heads * sizes.head_dim; }
  float scale() const {
    return static_cast<float>(1 / std::sqrt(static_cast<double>(sizes.head_dim)));
  }

  Tensor input(fe::graph::Graph& graph, Uid uid, std::int64_t heads, std::int64_t row) const {
    return graph.tensor(fe::graph::Tensor_attributes()
                            .set_uid(uid)
                            .set_data_type(fe::DataType_t::BFLOAT16)
                            .set_dim(dims(heads))
                            .set_stride(strides(row)));
  }
  void output(const Tensor& tensor, Uid uid, std::int64_t heads, std::int64_t row) const {
    tensor->set_output(true)
        .set_uid(uid)
        .set_data_type(fe::DataType_t::BFLOAT16)
        .set_dim(dims(heads))
        .set_stride(strides(row));
  }
  static void set_types(fe::graph::Graph& graph) {
    graph.set_io_data_type(fe::DataType_t::BFLOAT16)
        .set_intermediate_data_type(fe::DataType_t::FLOAT)
        .set_compute_data_type(fe::DataType_t::FLOAT);
  }

  void build_forward() {
    set_types(forward);
    const auto q = input(forward, kQ, sizes.heads, sizes.row);
    const auto k = input(forward, kK, sizes.kv_heads, sizes.row);
    const auto v = input(forward, kV, sizes.kv_heads, sizes.row);
    auto options = fe::graph::SDPA_attributes();
    options.set_name("attention").set_generate_stats(true).set_attn_scale(scale());
    options.set_causal_mask(sizes.causal);
    const auto [o, statistics] = forward.sdpa(q, k, v, options);
    output(o, kO, sizes.heads, dense());
    statistics->set_output(true).set_uid(kStats).set_data_type(fe::DataType_t::FLOAT);
    check(forward.build(handle, {fe::HeurMode_t::A}), "Graph::build (forward)");
  }

  void build_backward(bool deterministic) {
    set_types(backward);
    const auto q = input(backward, kQ, sizes.heads, sizes.row);
    const auto k = input(backward, kK, sizes.kv_heads, sizes.row);
    const auto v = input(backward, kV, sizes.kv_heads, sizes.row);
    const auto o = input(backward, kO, sizes.heads, dense());
    const auto d_o = input(backward, kGradO, sizes.heads, dense());
    const auto statistics =
        backward.tensor(fe::graph::Tensor_attributes()
                            .set_uid(kStats)
                            .set_data_type(fe::DataType_t::FLOAT)
                            .set_dim({sizes.documents, sizes.heads, sizes.length, 1})
                            .set_stride({sizes.heads * sizes.length, sizes.length, 1, 1}));
    auto options = fe::graph::SDPA_backward_attributes();
    options.set_name("attention_backward").set_attn_scale(scale());
    options.set_causal_mask(sizes.causal).set_deterministic_algorithm(deterministic);
    const auto [dq, dk, dv] = backward.sdpa_backward(q, k, v, o, d_o, statistics, options);
    output(dq, kGradQ, sizes.heads, sizes.row);
    output(dk, kGradK, sizes.kv_heads, sizes.row);
    output(dv, kGradV, sizes.kv_heads, sizes.row);
    check(backward.build(handle, {fe::HeurMode_t::A}), "Graph::build (backward)");
  }

  void run(const fe::graph::Graph& graph, execution::Queue& queue,
           std::unordered_map<std::int64_t, void*> operands) {
    check(cudnnSetStream(handle, static_cast<cudaStream_t>(queue.stream())), "cudnnSetStream");
    operands[kStats] = stats->data();
    check(graph.execute(handle, operands, workspace->data()), "Graph::execute");
  }
};

CudnnAttention::CudnnAttention(run::Gpu& gpu, const CudnnAttentionSizes& sizes, bool backward,
                               bool deterministic)
    : state_(std::make_unique<State>()) {
  State& s = *state_;
  s.sizes = sizes;
  check(cudnnCreate(&s.handle), "cudnnCreate");
  s.build_forward();
  std::int64_t bytes = s.forward.get_workspace_size();
  if (backward) {
    s.build_backward(deterministic);
    bytes = std::max(bytes, s.backward.get_workspace_size());
  }
  s.workspace = gpu.device_memory(static_cast<std::size_t>(bytes));
  s.stats = gpu.device_memory(
      static_cast<std::size_t>(sizes.documents * sizes.heads * sizes.length) * sizeof(float));
}

CudnnAttention::~CudnnAttention() = default;

void CudnnAttention::forward(execution::Queue& queue, const void* q, const void* k, const void* v,
                             void* o) {
  state_->run(state_->forward, queue,
              {{kQ, writable(q)}, {kK, writable(k)}, {kV, writable(v)}, {kO, o}});
}

void CudnnAttention::backward(execution::Queue& queue, const void* q, const void* k, const void* v,
                              const void* o, const void* d_o, void* dq, void* dk, void* dv) {
  state_->run(state_->backward, queue,
              {{kQ, writable(q)},
               {kK, writable(k)},
               {kV, writable(v)},
               {kO, writable(o)},
               {kGradO, writable(d_o)},
               {kGradQ, dq},
               {kGradK, dk},
               {kGradV, dv}});
}

std::string CudnnAttention::version() {
  const std::size_t v = cudnnGetVersion();
  return fmt::format("cuDNN {}.{}.{}, frontend {}.{}.{}", v / 10000, v / 100 % 100, v % 100,
                     CUDNN_FRONTEND_MAJOR_VERSION, CUDNN_FRONTEND_MINOR_VERSION,
                     CUDNN_FRONTEND_PATCH_VERSION);
}

}  // namespace stowage::drivers::bench
