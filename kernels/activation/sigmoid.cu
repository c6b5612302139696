// Output gate y = x sigmoid(gate), and the sigmoid of sums, with their gradients; formulas in
// sigmoid.hpp.
//
// Bound by memory: a thread has one pack of 16 bytes of each operand, or one element where the
// tensors are not whole packs; sums, of which there is one a row, go one by one. Elements are
// independent, so the bits depend on nothing else. Arithmetic is fp32.

#include "kernels/access.cuh"
#include "kernels/activation/sigmoid_launch.hpp"
#include "kernels/silu.cuh"

namespace stowage::kernels::sigmoids {
namespace {

using device::Access;
using execution::Bf16;

constexpr int kThreads = 256;

template <class Data>
__device__ __forceinline__ std::int64_t first_element() {
  return (std::int64_t{blockIdx.x} * kThreads + threadIdx.x) * Data::kSize;
}

template <class S, bool kPacked>
__global__ void __launch_bounds__(kThreads) forward_kernel(const Forward<S> args) {
  using Data = Access<S, kPacked>;
  const std::int64_t at = first_element<Data>();
  if (at >= args.elements) return;
  float x[Data::kSize], gate[Data::kSize];
  Data::unpack(Data::load(args.x + at), x);
  Data::unpack(Data::load(args.gate + at), gate);
#pragma unroll
  for (int i = 0; i < Data::kSize; ++i) x[i] *= device::sigmoid(gate[i]);
  Data::store(args.y + at, x);
}

template <class S, bool kPacked>
__global__ void __launch_bounds__(kThreads) backward_kernel(const Backward<S> args) {
  using Data = Access<S, kPacked>;
  const std::int64_t at = first_element<Data>();
  if (at >= args.elements) return;
  float dy[Data::kSize], x[Data::kSize], gate[Data::kSize];
  Data::unpack(Data::load(args.dy + at), dy);
  Data::unpack(Data::load(args.x + at), x);
  Data::unpack(Data::load(args.gate + at), gate);
#pragma unroll
  for (int i = 0; i < Data::kSize; ++i) {
    const float share = device::sigmoid(gate[i]);
    gate[i] = dy[i] * x[i] * share * (1.0F - share);
    dy[i] *= share;
  }
  Data::store(args.dgate + at, gate);
  Data::store(args.dx + at, dy);
}

__global__ void __launch_bounds__(kThreads)
    sigmoid_kernel(std::int64_t elements, const float* x, float* y) {
  const std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i < elements) y[i] = device::sigmoid(x[i]);
}

__global__ void __launch_bounds__(kThreads)
    sigmoid_backward_kernel(std::int64_t elements, const float* dy, const float* y, float* dx) {
  const std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i < elements) dx[i] = dy[i] * y[i] * (1.0F - y[i]);
}

unsigned blocks_of(std::int64_t threads) {
  return static_cast<unsigned>((threads + kThreads - 1) / kThreads);
}

template <class Args, class Packed, class Plain>
int launch_either(const Args& args, bool packed, int pack, Packed by_packs, Plain by_elements,
                  void* stream) {
  if (args.elements == 0) return cudaSuccess;
  const std::int64_t threads = args.elements / (packed ? pack : 1);
  const auto kernel = packed ? by_packs : by_elements;
  kernel<<<blocks_of(threads), kThreads, 0, static_cast<cudaStream_t>(stream)>>>(args);
  return cudaGetLastError();
}

}  // namespace

int launch_sigmoid(std::int64_t elements, const float* x, float* y, void* stream) {
  if (elements == 0) return cudaSuccess;
  sigmoid_kernel<<<blocks_of(elements), kThreads, 0, static_cast<cudaStream_t>(stream)>>>(elements,
                                                                                          x, y);
  return cudaGetLastError();
}

int launch_sigmoid_backward(std::int64_t elements, const float* dy, const float* y, float* dx,
                            void* stream) {
  if (elements == 0) return cudaSuccess;
  sigmoid_backward_kernel<<<blocks_of(elements), kThreads, 0, static_cast<cudaStream_t>(stream)>>>(
      elements, dy, y, dx);
  return cudaGetLastError();
}

template <class S>
int launch(const Forward<S>& args, void* stream) {
  const bool packed = device::whole_packs<S>({args.elements}, {args.x, args.gate, args.y});
  return launch_either(args, packed, device::kPackSize<S>, forward_kernel<S, true>,
                       forward_kernel<S, false>, stream);
}

template <class S>
int launch(const Backward<S>& args, void* stream) {
  const bool packed =
      device::whole_packs<S>({args.elements}, {args.dy, args.x, args.gate, args.dx, args.dgate});
  return launch_either(args, packed, device::kPackSize<S>, backward_kernel<S, true>,
                       backward_kernel<S, false>, stream);
}

template int launch(const Forward<float>&, void*);
template int launch(const Forward<Bf16>&, void*);
template int launch(const Backward<float>&, void*);
template int launch(const Backward<Bf16>&, void*);

}  // namespace stowage::kernels::sigmoids
