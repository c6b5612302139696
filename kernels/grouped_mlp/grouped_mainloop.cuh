#pragma once

#include "kernels/grouped_mlp/grouped_schedule.cuh"
#include "kernels/hopper/cp_async_bulk.cuh"
#include "kernels/hopper/fence.cuh"
#include "kernels/hopper/mbarrier.cuh"
#include "kernels/hopper/named_barrier.cuh"
#include "kernels/hopper/setmaxnreg.cuh"
#include "kernels/hopper/warp.cuh"
#include "kernels/hopper/wgmma.cuh"

/// The products of the grouped kernels: D (kHeight x kWidth) = A B over stages of 64, bf16 operands
/// in shared memory, fp32 sums in the registers of one warpgroup. One producer warp fills the ring;
/// two consumer warpgroups take the block's tiles in turn (ping-pong, as in CUTLASS's kernels of
/// that name), so one multiplies while the other stores. A tile of 128 by 176 to 208 is what the
/// registers of one warpgroup hold; 192 by 128 is as many.
namespace stowage::kernels::grouped {

using namespace hopper;

constexpr int kThreads = 384;

/// Of shared memory that an SM has for a block; of it, what leaves room for a block of
/// communication beside (execution/overlapping_products.cuh), which then need not wait for the end
/// of the products. Only tiles of 208 columns take more.
constexpr int kSharedOfSm = 227 << 10;
constexpr int kSharedBesideOthers = 226 << 10;

/// Registers of a thread: at launch, which are what a block holds, and of its two kinds of
/// warpgroups. A quarter of an SM has 16384 registers and three warps of such a block: of 168 each,
/// all that a launch may have, no other warp fits beside them; of 160, one of 32 does. The sums of
/// 208 columns need all. Kernels say kLaunch by __maxnreg__ alone: __block_size__ beside it makes
/// clusters of one block, with which one H200 took up to 20 % longer.
template <bool kAll>
struct RegistersOf {
  static constexpr int kLaunch = kAll ? 168 : 160;
  static constexpr int kProducer = kAll ? 24 : 32;
  static constexpr int kConsumer = kAll ? 240 : 224;
  static_assert(128 * kProducer + 256 * kConsumer <= kThreads * kLaunch);
};

/// Operands of one product. kTransA, kTransB: contiguous along the output, not along the
/// contraction ("MN-major"). The ring takes what shared memory `kOtherBytes` leave.
template <bool kTransposedA, bool kTransposedB, int kTileWidth, int kOtherBytes,
          bool kGatedB = false, int kTileHeight = kTileRows, int kLeastBRoom = 0>
struct Operands {
  static constexpr bool kGated = kGatedB;  // B: rows of the gate, then as many of the other half
  static constexpr bool kFp16 = false;     // operands in fp16
  static constexpr int kHeight = kTileHeight;
  static constexpr int kBlocks = kHeight / 64;  // row blocks of a warpgroup
  static constexpr bool kTransA = kTransposedA;
  static constexpr bool kTransB = kTransposedB;
  static constexpr int kWidth = kTileWidth;
  static constexpr int kColumns = kGated ? kWidth / 2 : kWidth;  // of the output
  static constexpr int kPanelBytes = kDepth * 128;               // 64 of the contraction by 64
  static constexpr int kPanels = ceil_div(kWidth, 64);           // of a transposed B
  static constexpr int kABytes = kHeight * 128;
  static constexpr int kBBytes = kTransB ? kPanels * kPanelBytes : kWidth * 128;
  // Of a stage; kLeastBRoom: for what other tiles in the same ring have there.
  static constexpr int kBRoom = kBBytes > kLeastBRoom ? kBBytes : kLeastBRoom;
  static constexpr int kRoom =
      kSharedOfSm - kOtherBytes - 512 - static_cast<int>(sizeof(ScheduleTables));
  static constexpr int kStages = kRoom / (kABytes + kBRoom);
  using Registers = RegistersOf<kWidth == 208>;
};

/// What the products need of shared memory.
template <class O>
struct Ring {
  alignas(1024) unsigned char a[O::kStages][O::kABytes];
  alignas(1024) unsigned char b[O::kStages][O::kBRoom];
  Mbarrier full[O::kStages], empty[O::kStages];
  Mbarrier turn[2];  // of each consumer warpgroup to multiply
  ScheduleTables tables;
};

template <class O>
using Sums = float[O::kBlocks][O::kWidth / 2];

template <class O>
__device__ __forceinline__ void init_barriers(Ring<O>& shared) {
  if (threadIdx.x == 0) {
    for (int i = 0; i < O::kStages; ++i) {
      mbarrier_init(&shared.full[i], 1);
      mbarrier_init(&shared.empty[i], 4);
    }
    mbarrier_init(&shared.turn[0], 4);
    mbarrier_init(&shared.turn[1], 4);
    mbarrier_init_fence();
  }
}

/// The order in which the two consumer warpgroups multiply, and where each finds its stages. A
/// warpgroup may wait for a stage only when the round before has arrived there: the parity of a
/// barrier tells neighbouring rounds apart and no more. So it waits for its turn, which the other
/// gives when its own last stage is there.
template <class O>
class Turns {
 public:
  __device__ __forceinline__ Turns(Ring<O>& shared, int group)
      : shared_(shared), group_(group), parity_(group == 0 ? 1U : 0U) {}

  /// Whether the next tile is for this warpgroup; if so waits for its turn, else moves over it.
  __device__ __forceinline__ bool take(int steps) {
    const bool mine = next_ == group_;
    next_ ^= 1;
    if (mine) {
      mbarrier_wait(&shared_.turn[group_], parity_);
      parity_ ^= 1U;
    } else {
      const int stage = at.stage + steps;
      const int rounds = stage / O::kStages;
      at.stage = stage - rounds * O::kStages;
      at.parity ^= static_cast<std::uint32_t>(rounds) & 1U;
    }
    return mine;
  }

  /// All stages of this turn have arrived.
  __device__ __forceinline__ void pass() {
    if (threadIdx.x % 32 == 0) mbarrier_arrive(&shared_.turn[group_ ^ 1]);
  }

  RingPosition<O::kStages> at;

 private:
  Ring<O>& shared_;
  int group_;
  int next_ = 0;
  std::uint32_t parity_;
};

/// Issues the products of one stage, or of the first `kSlices` times 16 of its contraction; not
/// waited for.
template <class O, int kSlices = kDepth / 16>
__device__ __forceinline__ void issue(Sums<O>& sums, const unsigned char* a, const unsigned char* b,
                                      int accumulate) {
  const std::uint64_t b_at =
      O::kTransB ? mn_major<Swizzle::b128>(b, O::kPanelBytes) : k_major<Swizzle::b128>(b);
#pragma unroll
  for (int k = 0; k < kSlices; ++k) {
#pragma unroll
    for (int block = 0; block < O::kBlocks; ++block) {
      const unsigned char* rows = a + block * 64 * 128;  // in both layouts
      const std::uint64_t a_at =
          O::kTransA ? mn_major<Swizzle::b128>(rows, O::kPanelBytes) : k_major<Swizzle::b128>(rows);
      const std::uint64_t a_slice = advance(a_at, k * (O::kTransA ? 16 * 128 : 32));
      const std::uint64_t b_slice = advance(b_at, k * (O::kTransB ? 16 * 128 : 32));
      const int adds = k > 0 ? 1 : accumulate;
      if constexpr (O::kFp16)
        Wgmma<O::kWidth>::template ss_f16<O::kTransA, O::kTransB>(sums[block], a_slice, b_slice,
                                                                  adds);
      else
        Wgmma<O::kWidth>::template ss<O::kTransA, O::kTransB>(sums[block], a_slice, b_slice, adds);
    }
  }
}

template <class O>
__device__ __forceinline__ void pin_sums(Sums<O>& sums) {
#pragma unroll
  for (int block = 0; block < O::kBlocks; ++block) pin_registers(sums[block]);
}

/// This warp is done with a stage.
template <class O>
__device__ __forceinline__ void release(Ring<O>& shared, int stage) {
  if (threadIdx.x % 32 == 0) mbarrier_arrive(&shared.empty[stage]);
}

/// Where a stage has the operands of `P`. If P's tiles are taller than those that the ring is made
/// for, each takes the room of the other.
template <class P, class O>
__device__ __forceinline__ unsigned char* a_of(Ring<O>& shared, int stage) {
  if constexpr (P::kHeight > O::kHeight) return shared.b[stage];
  return shared.a[stage];
}
template <class P, class O>
__device__ __forceinline__ unsigned char* b_of(Ring<O>& shared, int stage) {
  if constexpr (P::kHeight > O::kHeight) return shared.a[stage];
  return shared.b[stage];
}

/// Sums the products of `P` over `steps` stages, at least one, and releases them; with `last`, also
/// passes the turn on; added to the sums if `accumulate`. Complete on return.
template <class P, class O>
__device__ __forceinline__ void multiply(Ring<O>& shared, Turns<O>& turns, int steps, bool last,
                                         Sums<P>& sums, int accumulate = 0) {
  RingPosition<O::kStages>& at = turns.at;
  mbarrier_wait(&shared.full[at.stage], at.parity);
  wgmma_fence();
  issue<P>(sums, a_of<P>(shared, at.stage), b_of<P>(shared, at.stage), accumulate);
  wgmma_commit_group();
  int before = at.stage;
  at.next();
  for (int i = 1; i < steps; ++i) {
    mbarrier_wait(&shared.full[at.stage], at.parity);
    wgmma_fence();
    issue<P>(sums, a_of<P>(shared, at.stage), b_of<P>(shared, at.stage), 1);
    wgmma_commit_group();
    wgmma_wait_group<1>();
    release(shared, before);
    before = at.stage;
    at.next();
  }
  if (last) turns.pass();
  wgmma_wait_group<0>();
  pin_sums<P>(sums);
  release(shared, before);
}

/// The last stage of a turn, which the caller has waited for; added to the sums if `accumulate`. Of
/// its contraction the first `slices` times 16, at least one; for operands that lie along the
/// output.
template <class O>
__device__ __forceinline__ void multiply_stage(Ring<O>& shared, Turns<O>& turns, int accumulate,
                                               int slices, Sums<O>& sums) {
  static_assert(O::kTransA && O::kTransB);
  constexpr int kSliceBytes = 16 * 128;
  const int stage = turns.at.stage;
  pin_sums<O>(sums);
#pragma unroll 1
  for (int slice = 0; slice < slices; ++slice) {
    wgmma_fence();
    issue<O, 1>(sums, shared.a[stage] + slice * kSliceBytes, shared.b[stage] + slice * kSliceBytes,
                slice > 0 ? 1 : accumulate);
  }
  wgmma_commit_group();
  turns.pass();
  wgmma_wait_group<0>();
  pin_sums<O>(sums);
  release(shared, stage);
  turns.at.next();
}

}  // namespace stowage::kernels::grouped
