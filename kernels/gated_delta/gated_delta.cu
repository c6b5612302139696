// The gated delta rule in its chunked form, for any sizes whose tiles fit in shared memory; the
// formulas and the steps are in gated_delta_chunk.hpp and gated_delta_gradients.hpp.
//
//   prepare:   gates, norms, the inverse T and the scores M of every chunk of 64 tokens and head
//   scan:      a block a head and 16 columns of V walks over the chunks with its part of the state
//   adjoint:   the same from the last chunk on, with the gradient of the state
//   gradients: of q, k, b and a, a block a chunk and key head
//   finish:    sums over chunks
//
// bf16 storage: products of tf32 on tensor cores; sums, states and what the backward keeps of each
// chunk in fp32. fp32 storage: fp32 throughout, without tensor cores.
// Deterministic: every sum has one owner and one order; nothing is added atomically.
// Limits: latency of the walk over chunks, whose loads overlap with nothing; shared memory bounds
// the width of heads of q and k by 128.

#include <algorithm>

#include "execution/dtype.hpp"
#include "kernels/gated_delta/gated_delta.hpp"
#include "kernels/gated_delta/gated_delta_channel_gradients.hpp"
#include "kernels/gated_delta/gated_delta_launch.hpp"
#include "kernels/gated_delta/gated_delta_launches.cuh"
#include "kernels/gated_delta/gated_delta_team.cuh"
#include "kernels/gated_delta/gated_delta_wgmma.hpp"

namespace stowage::kernels::gated_delta {
namespace {

using execution::Bf16;

template <class S>
using Team = BlockTeam<std::is_same_v<S, Bf16>>;

extern __shared__ __align__(32) float shared[];

template <class S>
__global__ void __launch_bounds__(kThreads)
    prepare_kernel(const Arrays<S, float> p, const double epsilon) {
  prepare(Team<S>{}, p, static_cast<int>(blockIdx.x), static_cast<int>(blockIdx.y), shared,
          epsilon);
}

template <class S>
__global__ void __launch_bounds__(kThreads) scan_kernel(const Arrays<S, float> p, int first_slice) {
  scan(Team<S>{}, p, static_cast<int>(blockIdx.y), first_slice + static_cast<int>(blockIdx.x),
       shared);
}

template <class S>
__global__ void __launch_bounds__(kThreads) adjoint_kernel(const Arrays<S, float> p) {
  adjoint(Team<S>{}, p, static_cast<int>(blockIdx.y), static_cast<int>(blockIdx.x), shared);
}

template <class S>
__global__ void __launch_bounds__(kThreads) gradients_kernel(const Arrays<S, float> p) {
  gradients(Team<S>{}, p, static_cast<int>(blockIdx.x), static_cast<int>(blockIdx.y), shared);
}

template <class S>
__global__ void __launch_bounds__(kThreads) channel_gradients_kernel(const Arrays<S, float> p) {
  channel_gradients(Team<S>{}, p, static_cast<int>(blockIdx.x), static_cast<int>(blockIdx.y),
                    shared);
}

template <class S>
__global__ void finish_kernel(const Arrays<S, float> p) {
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i < p.parts() * p.value_heads) finish(p, i);
}

template <class... Parameters, class... Args>
cudaError_t launch(void (*kernel)(Parameters...), int x, int y, std::int64_t floats, void* stream,
                   const Args&... args) {
  const auto bytes = static_cast<int>(floats * static_cast<std::int64_t>(sizeof(float)));
  return launch_blocks(kernel, x, y, kThreads, bytes, stream, args...);
}

template <class S>
cudaError_t launch_prepare(const Arrays<S, float>& p, void* stream) {
  return launch(prepare_kernel<S>, p.chunks(), p.value_heads,
                prepare_room(p.key_dim, p.channel_decay), stream, p, kGatedDeltaEpsilon);
}

/// Slices [first, first + count).
template <class S>
cudaError_t launch_scan(const Arrays<S, float>& p, int first, int count, void* stream) {
  return launch(scan_kernel<S>, count, p.value_heads, scan_room(p.key_dim, p.channel_decay), stream,
                p, first);
}

template <class S>
cudaError_t launch_adjoint(const Arrays<S, float>& p, void* stream) {
  return launch(adjoint_kernel<S>, slices(p.value_dim), p.value_heads,
                scan_room(p.key_dim, p.channel_decay), stream, p);
}

}  // namespace

template <class S>
int launch_finish(const Arrays<S, float>& p, void* stream) {
  return launch(finish_kernel<S>, (p.parts() * p.value_heads + kThreads - 1) / kThreads, 1, 0,
                stream, p);
}

template <class S>
int launch_forward(const Arrays<S, float>& p, void* stream) {
  const cudaError_t status = launch_prepare(p, stream);
  if (status != cudaSuccess) return status;
  return launch_scan(p, 0, slices(p.value_dim), stream);
}

template <class S>
int launch_backward(const Arrays<S, float>& p, void* stream) {
  cudaError_t status = launch_prepare(p, stream);
  if (status == cudaSuccess) status = launch_scan(p, 0, slices(p.value_dim), stream);
  if (status == cudaSuccess) status = launch_adjoint(p, stream);
  if (status == cudaSuccess)
    status = p.channel_decay ? launch(channel_gradients_kernel<S>, p.chunks(), p.key_heads,
                                      channel_gradients_room(p.key_dim), stream, p)
                             : launch(gradients_kernel<S>, p.chunks(), p.key_heads,
                                      gradients_room(p.key_dim), stream, p);
  if (status != cudaSuccess) return status;
  return launch_finish(p, stream);
}

template <class S>
int launch_segment(const Arrays<S, float>& p, void* stream) {
  const cudaError_t status = launch_prepare(p, stream);
  if (status != cudaSuccess) return status;
  const int values = slices(p.value_dim), matrices = slices(p.key_dim);
  if (p.dy == nullptr) return launch_scan(p, 0, values + matrices, stream);
  const cudaError_t scanned = launch_scan(p, values, matrices, stream);
  return scanned != cudaSuccess ? scanned : launch_adjoint(p, stream);
}

int launch_forward(const Chunked& c, void* stream) {
  const int status = launch_prepare(c, stream);
  return status != cudaSuccess ? status : launch_walks(c, 0, kWide / kPart, stream);
}

int launch_backward(const Chunked& c, void* stream) {
  int status = launch_prepare(c, stream);
  if (status == cudaSuccess) status = launch_walks(c, 0, kWide / kPart, stream);
  if (status == cudaSuccess) status = launch_gradients(c, stream);
  return status != cudaSuccess ? status : launch_finish(c.arrays, stream);
}

int launch_segment(const Chunked& c, void* stream) {
  const int status = launch_prepare(c, stream);
  if (status != cudaSuccess) return status;
  constexpr int kParts = kWide / kPart;
  const bool back = c.arrays.dy != nullptr;
  return launch_walks(c, back ? kParts : 0, back ? kParts : 2 * kParts, stream);
}

template int launch_finish(const Arrays<float, float>&, void*);
template int launch_finish(const Arrays<Bf16, float>&, void*);
template int launch_forward(const Arrays<float, float>&, void*);
template int launch_forward(const Arrays<Bf16, float>&, void*);
template int launch_backward(const Arrays<float, float>&, void*);
template int launch_backward(const Arrays<Bf16, float>&, void*);
template int launch_segment(const Arrays<float, float>&, void*);
template int launch_segment(const Arrays<Bf16, float>&, void*);

}  // namespace stowage::kernels::gated_delta
