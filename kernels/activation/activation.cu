// Squared ReLU and SwiGLU of rows (n, F), and their gradients; formulas in activation.hpp.
//
// Bound by memory. The forward has a lane for each pack of 16 bytes: many small blocks, started in
// the order of addresses, keep the bytes under way close together, and one access of a lane is
// faster than four. In the backward a group of 32 to 256 lanes owns a row, so that the sum of its
// weight's gradient stays in the group: each lane adds its packs in order, then the lanes by a
// butterfly, then the warps in order; a lane loads kUnroll packs before it uses the first. Rows
// that are not whole packs go element by element. Blocks beyond the valid rows end at once.
// Arithmetic is fp32.
// Limit: that of a copy of as many bytes.

#include "kernels/access.cuh"
#include "kernels/activation/activation.cuh"
#include "kernels/activation/activation_launch.hpp"
#include "kernels/hopper/warp.cuh"
#include "kernels/magnitude.cuh"

namespace stowage::kernels::activation {
namespace {

using device::Access;
using execution::Bf16;

constexpr int kThreads = 256;
constexpr int kWarpSize = 32;
constexpr int kUnroll = 4;

// Rows that a device-side count leaves.
__device__ __forceinline__ std::int64_t valid(std::int64_t rows, const std::int32_t* valid_rows) {
  return valid_rows == nullptr ? rows : min(rows, static_cast<std::int64_t>(*valid_rows));
}

// Of values as they are stored.
template <class S, bool kPacked>
__device__ __forceinline__ std::uint32_t stored_magnitude(
    const float (&values)[Access<S, kPacked>::kSize]) {
  if constexpr (kPacked)
    return device::largest_of<S>(device::pack<S>(values));
  else
    return device::largest_of<S>(device::round_to<S>(values[0]));
}

// Threads (x: along a row, y: rows), blocks (segments of a row, then groups of rows).
template <class S, Activation kKind, bool kPacked>
__global__ void __launch_bounds__(kThreads) forward_kernel(const Forward<S> args, int segments) {
  using Data = Access<S, kPacked>;
  constexpr bool kGated = kKind == Activation::swiglu;
  const std::int64_t row = std::int64_t{blockIdx.x / segments} * blockDim.y + threadIdx.y;
  const std::int64_t column =
      (std::int64_t{blockIdx.x % segments} * blockDim.x + threadIdx.x) * Data::kSize;
  if (row >= valid(args.rows, args.valid_rows) || column >= args.columns) return;
  const S* x = args.x + row * args.columns * (kGated ? 2 : 1) + column;
  const auto in = Data::load(x);
  float a[Data::kSize], b[Data::kSize] = {};
  if constexpr (kGated) Data::unpack(Data::load(x + args.columns), b);
  Data::unpack(in, a);
  const float weight = args.row_weight != nullptr ? args.row_weight[row] : 1.0F;
#pragma unroll
  for (int i = 0; i < Data::kSize; ++i) a[i] = weight * activate<kKind>(a[i], b[i]);
  Data::store(args.y + row * args.columns + column, a);
}

template <class S, Activation kKind, bool kPacked, bool kMeasured>
__global__ void __launch_bounds__(kThreads) backward_kernel(const Backward<S> args, int lanes) {
  using Data = Access<S, kPacked>;
  constexpr bool kGated = kKind == Activation::swiglu;
  __shared__ float sums[kThreads / kWarpSize];
  const std::int64_t row =
      std::int64_t{blockIdx.x} * (kThreads / lanes) + static_cast<int>(threadIdx.x) / lanes;
  const std::int64_t rows = valid(args.rows, args.valid_rows);
  if (std::int64_t{blockIdx.x} * (kThreads / lanes) >= rows) return;  // whole blocks
  [[maybe_unused]] std::uint32_t largest = 0, known = 0;
  if constexpr (kMeasured) known = device::known_largest(args.amax);
  const bool inside = row < rows;
  const S* dy = args.dy + row * args.columns;
  const S* x = args.x + row * args.columns * (kGated ? 2 : 1);
  S* dx = args.dx + row * args.columns * (kGated ? 2 : 1);
  const float weight = inside && args.row_weight != nullptr ? args.row_weight[row] : 1.0F;
  const int step = lanes * Data::kSize, columns = inside ? static_cast<int>(args.columns) : 0;
  float sum = 0;
  for (int first = static_cast<int>(threadIdx.x) % lanes * Data::kSize; first < columns;
       first += kUnroll * step) {
    typename Data::Bits gradient[kUnroll], in[kUnroll], up[kUnroll];
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      const int j = first + u * step;
      if (j < columns) gradient[u] = Data::load(dy + j);
      if (j < columns) in[u] = Data::load(x + j);
      if (kGated && j < columns) up[u] = Data::load(x + columns + j);
    }
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      const int j = first + u * step;
      if (j >= columns) break;
      float g[Data::kSize], a[Data::kSize], b[Data::kSize] = {};
      Data::unpack(gradient[u], g);
      Data::unpack(in[u], a);
      if constexpr (kGated) Data::unpack(up[u], b);
#pragma unroll
      for (int i = 0; i < Data::kSize; ++i)
        sum += differentiate<kKind>(g[i], a[i], b[i], weight, a[i], b[i]);
      Data::store(dx + j, a);
      if constexpr (kGated) Data::store(dx + columns + j, b);
      if constexpr (kMeasured) largest = max(largest, stored_magnitude<S, kPacked>(a));
      if constexpr (kMeasured && kGated) largest = max(largest, stored_magnitude<S, kPacked>(b));
    }
  }
  if constexpr (kMeasured) device::add_largest(largest, known, args.amax);
  if (args.drow_weight == nullptr) return;
  sum = hopper::lanes_sum<kWarpSize>(sum);
  if (lanes > kWarpSize) {
    if (threadIdx.x % kWarpSize == 0) sums[threadIdx.x / kWarpSize] = sum;
    __syncthreads();
    const int first_warp = static_cast<int>(threadIdx.x) / lanes * lanes / kWarpSize;
    sum = 0;
    for (int warp = 0; warp < lanes / kWarpSize; ++warp) sum += sums[first_warp + warp];
  }
  if (inside && static_cast<int>(threadIdx.x) % lanes == 0) args.drow_weight[row] = sum;
}

// How a lane for each access covers rows: whole warps of lanes, several rows of a block where they
// are short, several blocks of a row where it is long.
struct Cover {
  int segments, lanes, rows;

  explicit Cover(std::int64_t loads)
      : segments(static_cast<int>((loads + kThreads - 1) / kThreads)),
        lanes(static_cast<int>(((loads + segments - 1) / segments + kWarpSize - 1) / kWarpSize) *
              kWarpSize),
        rows(kThreads / lanes) {}
};

// Lanes of a row: few enough that each has kUnroll loads to make, if the row has as many.
int lanes_of_row(std::int64_t loads) {
  int lanes = kWarpSize;
  while (lanes < kThreads && lanes * kUnroll < loads) lanes *= 2;
  return lanes;
}

// Calls f.operator()<kKind, kPacked>().
template <class F>
void with_variant(Activation kind, bool packed, F&& f) {
  if (kind == Activation::swiglu)
    packed ? f.template operator()<Activation::swiglu, true>()
           : f.template operator()<Activation::swiglu, false>();
  else
    packed ? f.template operator()<Activation::squared_relu, true>()
           : f.template operator()<Activation::squared_relu, false>();
}

unsigned blocks_of(std::int64_t rows, int lanes) {
  const std::int64_t rows_per_block = kThreads / lanes;
  return static_cast<unsigned>((rows + rows_per_block - 1) / rows_per_block);
}

}  // namespace

template <class S>
int launch(const Forward<S>& args, void* stream) {
  if (args.rows == 0 || args.columns == 0) return cudaSuccess;
  const bool packed = device::whole_packs<S>({args.columns}, {args.x, args.y});
  with_variant(args.kind, packed, [&]<Activation kKind, bool kPacked>() {
    const Cover cover(args.columns / Access<S, kPacked>::kSize);
    const std::int64_t groups = (args.rows + cover.rows - 1) / cover.rows;
    const dim3 threads(static_cast<unsigned>(cover.lanes), static_cast<unsigned>(cover.rows));
    forward_kernel<S, kKind, kPacked><<<static_cast<unsigned>(groups * cover.segments), threads, 0,
                                        static_cast<cudaStream_t>(stream)>>>(args, cover.segments);
  });
  return cudaGetLastError();
}

template <class S>
int launch(const Backward<S>& args, void* stream) {
  auto* const on = static_cast<cudaStream_t>(stream);
  if (const cudaError_t code = device::clear_largest(args.amax, on); code != cudaSuccess)
    return code;
  if (args.rows == 0) return cudaSuccess;
  const bool packed = device::whole_packs<S>({args.columns}, {args.dy, args.x, args.dx});
  with_variant(args.kind, packed, [&]<Activation kKind, bool kPacked>() {
    const int lanes = lanes_of_row(args.columns / Access<S, kPacked>::kSize);
    device::with_measured(args.amax != nullptr, [&]<bool kMeasured>() {
      backward_kernel<S, kKind, kPacked, kMeasured>
          <<<blocks_of(args.rows, lanes), kThreads, 0, on>>>(args, lanes);
    });
  });
  return cudaGetLastError();
}

template int launch(const Forward<float>&, void*);
template int launch(const Forward<Bf16>&, void*);
template int launch(const Backward<float>&, void*);
template int launch(const Backward<Bf16>&, void*);

}  // namespace stowage::kernels::activation
