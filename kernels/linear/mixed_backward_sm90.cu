// Both gradients of a product with fp32 dy (n, E), at most 128 wide, and bf16 x (n, D), w (E, D):
//
//   dx (n, D) bf16 = or += dy w          dw (E, D) fp32 = or += dy^T x
//
// dy is a sum of bf16 parts, high + middle + low (split kernel), side by side in a matrix (n, C)
// that stays in L2. A block has 128 columns of D and a run of rows; a ring brings 64 rows of x, dx
// and the parts at a time, w's columns stay. Two warpgroups of 64 columns each add to dw's
// transpose (64 by E) in registers, and dx passes through shared memory: read, added to, written
// back by the copy engine while dw's products run. So x is read once, dx read and written once. dx,
// which is rounded to 8 bits, takes the first two parts (2^-17 of dy is left out); dw takes
// all. x^T comes to registers once for all parts, which spares shared memory a sixth of dw's
// operands. The runs' dw meet in fp32 in order of the run, in a kernel of their own.
// Cost: 6 bytes an element of dx, 2 (2 + 3) n D E flops; same bits every time, no atomics.
// Limits on one H200, D 2048: memory at E 32 (ncu: 3.4 TB/s); at E 128 shared memory, 83 % busy.

#include "kernels/hopper/convert.cuh"
#include "kernels/hopper/dependent_launch.cuh"
#include "kernels/hopper/fence.cuh"
#include "kernels/hopper/matrix_move.cuh"
#include "kernels/hopper/named_barrier.cuh"
#include "kernels/hopper/warp.cuh"
#include "kernels/hopper/wgmma.cuh"
#include "kernels/linear/mixed_backward_feed.cuh"

namespace stowage::kernels::mixed {
namespace {

/// Adds a warpgroup's 64 by 64 sums to a panel of dx in shared memory, or stores them there.
__device__ __forceinline__ void add_to_panel(unsigned char* panel, const float (&sums)[32],
                                             bool accumulate) {
  const int thread = static_cast<int>(threadIdx.x) % 128;
  const int row = thread / 32 * 16 + thread % 32 / 4;
#pragma unroll
  for (int j = 0; j < 8; ++j)
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const auto offset =
          static_cast<std::uint32_t>((row + 8 * half) * 128 + 16 * j + thread % 4 * 4);
      auto* to = reinterpret_cast<std::uint32_t*>(panel + swizzled<Swizzle::b128>(offset));
      const std::uint32_t old = accumulate ? *to : 0U;
      *to = pack_bf16(unpack_low(old) + sums[4 * j + 2 * half],
                      unpack_high(old) + sums[4 * j + 2 * half + 1]);
    }
}

template <int kExperts, class L>
__device__ __forceinline__ void issue_dx(const Shared<L>& shared, int stage, int group,
                                         float (&sums)[32]) {
#pragma unroll
  for (int panel = 0; panel < L::kDxPanels; ++panel)
#pragma unroll
    for (int k = 0; k < 4; ++k)
      Wgmma<64>::ss<0, 1>(sums, advance(k_major<Swizzle::b128>(shared.parts[stage][panel]), 32 * k),
                          advance(mn_major<Swizzle::b128>(shared.w[group], kPanelBytes),
                                  (panel * 64 % L::kWidth + 16 * k) * 128),
                          panel + k > 0 ? 1 : 0);
}

/// A warp's 16 rows of the transpose of an x panel (64 rows of x by 64 columns), as A operands of
/// four products.
__device__ __forceinline__ void load_transposed(const unsigned char* panel,
                                                std::uint32_t (&x)[4][4]) {
  const int lane = static_cast<int>(threadIdx.x % 32),
            warp = static_cast<int>(threadIdx.x / 32 % 4);
  const int row = lane / 16 * 8 + lane % 8, chunk = 2 * warp + lane / 8 % 2;
  const std::uint32_t at =
      shared_address(panel) +
      swizzled<Swizzle::b128>(static_cast<std::uint32_t>(128 * row + 16 * chunk));
#pragma unroll
  for (int k = 0; k < 4; ++k) ldmatrix_x4_trans(x[k], at + 2048U * static_cast<std::uint32_t>(k));
}

template <class L>
__device__ __forceinline__ void issue_dw(const Shared<L>& shared, int stage,
                                         const std::uint32_t (&x)[4][4],
                                         float (&sums)[L::kWidth / 2]) {
#pragma unroll
  for (int part = 0; part < L::kGroups; ++part)
#pragma unroll
    for (int k = 0; k < 4; ++k)
      Wgmma<L::kWidth>::template rs<1>(
          sums, x[k][0], x[k][1], x[k][2], x[k][3],
          advance(mn_major<Swizzle::b128>(shared.parts[stage][part * L::kWidth / 64], kPanelBytes),
                  2048 * k),
          1);
}

/// The run's dw, from its transpose in a warpgroup's registers; at 32 experts its parts as well.
template <int kExperts, class L>
__device__ __forceinline__ void store_dw(const float (&sums)[L::kWidth / 2],
                                         const BackwardSizes& sizes, int column, float* to) {
  const int thread = static_cast<int>(threadIdx.x) % 128;
  column += thread / 32 * 16 + thread % 32 / 4;
#pragma unroll
  for (int j = 0; j < kExperts / 8; ++j)
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int expert = 8 * j + thread % 4 * 2 + i % 2, d = column + i / 2 * 8;
      const float sum =
          kExperts == 32 ? sums[4 * j + i] + sums[L::kWidth / 4 + 4 * j + i] : sums[4 * j + i];
      if (expert < sizes.experts && d < sizes.width)
        to[std::int64_t{expert} * sizes.width + d] = sum;
    }
}

template <int kExperts, class L>
__device__ __forceinline__ void consume(Shared<L>& shared, const Maps& maps, const Run& run,
                                        const BackwardSizes& sizes, bool accumulate,
                                        float* partial) {
  const int group = uniform_warp_index() / 4;
  const bool leader = threadIdx.x % 128 == 0;
  float dw[L::kWidth / 2] = {};
  float dx[32];
  std::uint32_t x[4][4];
  RingPosition<L::kStages> at;
  RingPosition<kDxSlots> slot;
  int last_slot = -1;
  mbarrier_wait(&shared.w_full, 0);
  for (int step = run.begin; step < run.end; ++step) {
    mbarrier_wait(&shared.full[at.stage], at.parity);
    pin_registers(dw);
    wgmma_fence();
    issue_dx<kExperts>(shared, at.stage, group, dx);
    wgmma_commit_group();
    load_transposed(shared.x[at.stage][group], x);  // while the first products run
    wgmma_fence();
    issue_dw<L>(shared, at.stage, x, dw);
    wgmma_commit_group();
    wgmma_wait_group<1>();
    pin_registers(dx);
    mbarrier_wait(&shared.dx_full[slot.stage], slot.parity);
    add_to_panel(shared.dx[slot.stage][group], dx, accumulate);
    fence_proxy_async();
    named_barrier_sync(1 + group, 128);
    if (leader) {
      bulk_store_2d(maps.dx, shared.dx[slot.stage][group], run.column + 64 * group,
                    step * kStepRows);
      bulk_commit_group();
      bulk_wait_group_read<1>();
      if (last_slot >= 0) mbarrier_arrive(&shared.dx_empty[last_slot]);
    }
    last_slot = slot.stage;
    slot.next();
    wgmma_wait_group<0>();
    pin_registers(dw);
#pragma unroll
    for (int k = 0; k < 4; ++k) pin_registers(x[k]);
    if (threadIdx.x % 32 == 0) mbarrier_arrive(&shared.empty[at.stage]);
    at.next();
  }
  const std::int64_t split = static_cast<int>(blockIdx.x) / sizes.slices;
  store_dw<kExperts, L>(dw, sizes, run.column + 64 * group,
                        partial + split * sizes.experts * sizes.width);
  if (leader) bulk_wait_group<0>();
}

template <int kExperts>
__global__ void __launch_bounds__(kThreads, 1)
    both(const __grid_constant__ CUtensorMap parts, const __grid_constant__ CUtensorMap x,
         const __grid_constant__ CUtensorMap w, const __grid_constant__ CUtensorMap dx,
         const BackwardSizes sizes, bool accumulate, float* partial) {
  using L = Layout<kExperts>;
  static_assert(L::kStages >= 2 && sizeof(Shared<L>) + 1024 <= kSharedBytes);
  extern __shared__ unsigned char raw[];
  auto& shared = *reinterpret_cast<Shared<L>*>(raw + (1024 - shared_address(raw) % 1024) % 1024);
  if (threadIdx.x == 0) {
    for (const CUtensorMap* map : {&parts, &x, &w, &dx}) prefetch_tensor_map(map);
    for (int i = 0; i < L::kStages; ++i) {
      mbarrier_init(&shared.full[i], 1);
      mbarrier_init(&shared.empty[i], 8);
    }
    for (int i = 0; i < kDxSlots; ++i) {
      mbarrier_init(&shared.dx_full[i], 1);
      mbarrier_init(&shared.dx_empty[i], 2);
    }
    mbarrier_init(&shared.w_full, 1);
    mbarrier_init_fence();
  }
  __syncthreads();
  const Run run = run_of_block(sizes);
  const Maps maps{&parts, &x, &w, &dx};
  if (uniform_warp_index() < 8) {
    griddepcontrol_wait();
    consume<kExperts>(shared, maps, run, sizes, accumulate, partial);
  } else if (elect_one()) {
    Producer<kExperts, L>{shared, maps, run, accumulate}();
  }
}

}  // namespace

cudaError_t launch_both(const BackwardSizes& sizes, const CUtensorMap& parts, const CUtensorMap& x,
                        const CUtensorMap& w, const CUtensorMap& dx, bool accumulate,
                        float* partial, cudaStream_t stream) {
  return with_experts(sizes.padded, [&]<int kExperts>() {
    const auto kernel = both<kExperts>;
    const cudaError_t status =
        cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kSharedBytes);
    if (status != cudaSuccess) return status;
    return launch_dependent(kernel, static_cast<unsigned>(sizes.slices * sizes.splits), kThreads,
                            kSharedBytes, stream, parts, x, w, dx, sizes, accumulate, partial);
  });
}

}  // namespace stowage::kernels::mixed
