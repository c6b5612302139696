#include "kernels/ssd/ssd_cuda_dispatch.hpp"

#include "execution/error.hpp"
#include "kernels/machine.hpp"
#include "kernels/operands.hpp"
#include "kernels/ssd/ssd_simple.hpp"

namespace stowage::kernels::detail {

using execution::Bf16;
using execution::Dtype;

namespace {

constexpr std::int64_t kMostTokens = std::int64_t{1} << 30;

template <class S>
ssd::SimpleMatrix simple_matrix(const Matrix<S>& m) {
  return {m.data, m.stride};
}

template <class S>
ssd::SimpleScan simple_scan(const SsdShape& shape, const SsdInputs<S>& inputs, void* workspace) {
  const std::int64_t shared_bytes =
      ssd::simple_shared_bytes(static_cast<int>(shape.head_dim), static_cast<int>(shape.state));
  STOWAGE_ASSERT(inputs.x.rows < kMostTokens, "ssd: {} tokens", inputs.x.rows);
  STOWAGE_ASSERT(shared_bytes <= machine().shared_bytes,
                 "ssd: head_dim {} and state {} need {} bytes of shared memory, of {}",
                 shape.head_dim, shape.state, shared_bytes, machine().shared_bytes);
  ssd::SimpleScan scan;
  scan.bf16 = Operands("ssd").is_bf16(execution::kDtypeOf<S>);
  scan.tokens = static_cast<int>(inputs.x.rows);
  scan.heads = static_cast<int>(shape.heads);
  scan.head_dim = static_cast<int>(shape.head_dim);
  scan.groups = static_cast<int>(shape.groups);
  scan.state = static_cast<int>(shape.state);
  scan.dt_min = static_cast<float>(shape.dt_min);
  scan.dt_max = static_cast<float>(shape.dt_max);
  scan.x = simple_matrix(inputs.x);
  scan.dt = simple_matrix(inputs.dt);
  scan.b = simple_matrix(inputs.b);
  scan.c = simple_matrix(inputs.c);
  scan.a_log = inputs.a_log;
  scan.d = inputs.d;
  scan.dt_bias = inputs.dt_bias;
  scan.seq_idx = inputs.seq_idx;
  scan.initial_state = inputs.initial_state;
  scan.workspace = static_cast<float*>(workspace);
  return scan;
}

// X, B and C as one matrix [X | B | C].
template <class S>
void check_neighbours(const Matrix<S>& x, const Matrix<S>& b, const Matrix<S>& c) {
  STOWAGE_ASSERT(b.data == x.data + x.columns && c.data == b.data + b.columns &&
                     x.stride == b.stride && b.stride == c.stride,
                 "ssd: X, B and C are not neighbouring columns of one tensor");
}

template <class Args, class S>
void put_inputs(Args& args, SsdCudaShape& sizes, const SsdInputs<S>& inputs) {
  check_neighbours(inputs.x, inputs.b, inputs.c);
  sizes.xbc_stride = inputs.x.stride;
  sizes.dt_stride = inputs.dt.stride;
  args.xbc = inputs.x.data;
  args.dt_raw = inputs.dt.data;
  args.a_log = inputs.a_log;
  args.d = inputs.d;
  args.dt_bias = inputs.dt_bias;
  args.seq_idx = inputs.seq_idx;
  args.initial_state = inputs.initial_state;
}

}  // namespace

template <class S>
int ssd_forward_cuda(const SsdShape& shape, const SsdInputs<S>& inputs, S* y, void* workspace,
                     const SsdFinal<S>& final, void* stream) {
  const std::int64_t tokens = inputs.x.rows;
  const auto on = static_cast<cudaStream_t>(stream);
  if (tokens == 0 || !on_tensor_cores(shape, execution::kDtypeOf<S>))
    return launch_simple_forward(simple_scan(shape, inputs, workspace),
                                 {{y, inputs.x.columns}, final.state, final.total_decay}, on);
  SsdCudaShape sizes = cuda_shape(shape, tokens);
  SsdCudaForward args;
  put_inputs(args, sizes, inputs);
  args.y = y;
  args.final_state = final.state;
  args.total_decay = final.total_decay;
  args.workspace = workspace;
  ssd_cuda_forward(sizes, args, on);
  return cudaSuccess;
}

template <class S>
int ssd_backward_cuda(const SsdShape& shape, const SsdInputs<S>& inputs, const S* dy,
                      const SsdGradients<S>& gradients, void* workspace, bool accumulate,
                      void* stream) {
  const std::int64_t tokens = inputs.x.rows;
  const auto on = static_cast<cudaStream_t>(stream);
  if (tokens == 0 || !on_tensor_cores(shape, execution::kDtypeOf<S>)) {
    ssd::SimpleGradients g;
    g.dy = {dy, inputs.x.columns};
    g.dx = simple_matrix(gradients.dx);
    g.ddt = simple_matrix(gradients.ddt);
    g.db = simple_matrix(gradients.db);
    g.dc = simple_matrix(gradients.dc);
    g.da_log = gradients.da_log;
    g.dd = gradients.dd;
    g.ddt_bias = gradients.ddt_bias;
    g.dfinal_state = gradients.dfinal_state;
    g.dinitial_state = gradients.dinitial_state;
    g.accumulate = accumulate;
    return launch_simple_backward(simple_scan(shape, inputs, workspace), g, on);
  }
  SsdCudaShape sizes = cuda_shape(shape, tokens);
  SsdCudaBackward args;
  put_inputs(args, sizes, inputs);
  check_neighbours(gradients.dx, gradients.db, gradients.dc);
  sizes.dxbc_stride = gradients.dx.stride;
  sizes.ddt_stride = gradients.ddt.stride;
  args.dy = dy;
  args.dxbc = gradients.dx.data;
  args.ddt_raw = gradients.ddt.data;
  args.da_log = gradients.da_log;
  args.dd = gradients.dd;
  args.ddt_bias = gradients.ddt_bias;
  args.dfinal_state = gradients.dfinal_state;
  args.dinitial_state = gradients.dinitial_state;
  args.workspace = workspace;
  args.accumulate = accumulate;
  ssd_cuda_backward(sizes, args, on);
  return cudaSuccess;
}

template <class S>
int ssd_segment_cuda(const SsdShape& shape, const SsdInputs<S>& inputs, const S* dy, float* to,
                     void* stream) {
  const auto on = static_cast<cudaStream_t>(stream);
  const ssd::SimpleScan scan = simple_scan(shape, inputs, nullptr);
  if (dy == nullptr) return launch_segment_state(scan, to, on);
  return launch_segment_adjoint(scan, {dy, inputs.x.columns}, to, on);
}

#define STOWAGE_INSTANTIATE(S)                                                   \
  template int ssd_forward_cuda(const SsdShape&, const SsdInputs<S>&, S*, void*, \
                                const SsdFinal<S>&, void*);                      \
  template int ssd_backward_cuda(const SsdShape&, const SsdInputs<S>&, const S*, \
                                 const SsdGradients<S>&, void*, bool, void*);    \
  template int ssd_segment_cuda(const SsdShape&, const SsdInputs<S>&, const S*, float*, void*);
STOWAGE_INSTANTIATE(float)
STOWAGE_INSTANTIATE(Bf16)
#undef STOWAGE_INSTANTIATE

}  // namespace stowage::kernels::detail
