#pragma once

#include "kernels/hopper/cp_async_bulk.cuh"
#include "kernels/hopper/griddepcontrol.cuh"
#include "kernels/hopper/mbarrier.cuh"
#include "kernels/linear/mixed_launch.hpp"

/// What feeds the products of mixed_backward_sm90.cu: the shared memory of a block, and the copies
/// that fill it.
namespace stowage::kernels::mixed {

using namespace hopper;

constexpr int kThreads = 288;  // two consumer warpgroups and a producer warp
constexpr int kPanelBytes = kStepRows * 128;
constexpr int kSharedBytes = 232448;
constexpr int kReservedBytes = 4096;  // of it, for barriers and alignment
constexpr int kDxSlots = 3;

/// kExperts: 32, 64 or 128.
template <int kExperts>
struct Layout {
  static constexpr int kWidth = kExperts < 64 ? 64 : kExperts;  // of one product with dw
  static constexpr int kPanels = kColumns<kExperts> / 64;
  static constexpr int kGroups = kPanels * 64 / kWidth;
  static constexpr int kDxPanels = 2 * kExperts / 64;  // high and middle
  static constexpr int kWeightBytes = kWidth * 128;    // a panel of w
  static constexpr int kStageBytes = (2 + kPanels) * kPanelBytes;
  static constexpr int kRoom =
      kSharedBytes - kReservedBytes - 2 * kWeightBytes - kDxSlots * 2 * kPanelBytes;
  static constexpr int kStages = kRoom / kStageBytes < 4 ? kRoom / kStageBytes : 4;
};

template <class L>
struct Shared {
  alignas(1024) unsigned char x[L::kStages][2][kPanelBytes];
  alignas(1024) unsigned char parts[L::kStages][L::kPanels][kPanelBytes];
  alignas(1024) unsigned char dx[kDxSlots][2][kPanelBytes];
  alignas(1024) unsigned char w[2][L::kWeightBytes];
  Mbarrier full[L::kStages], empty[L::kStages];
  Mbarrier dx_full[kDxSlots], dx_empty[kDxSlots];
  Mbarrier w_full;
};

struct Run {
  int column, begin, end;  // of the block: first column, steps
};

__device__ __forceinline__ Run run_of_block(const BackwardSizes& sizes) {
  const int slice = static_cast<int>(blockIdx.x) % sizes.slices;
  const int split = static_cast<int>(blockIdx.x) / sizes.slices;
  const auto step = [&](int s) {
    return static_cast<int>(std::int64_t{sizes.steps} * s / sizes.splits);
  };
  return {slice * kSliceColumns, step(split), step(split + 1)};
}

struct Maps {
  const CUtensorMap *parts, *x, *w, *dx;
};

/// Fills the ring. What the kernel ahead, which splits dy, does not write is asked for before that
/// has ended: it lets this one start only once all before it is complete.
template <int kExperts, class L>
struct Producer {
  Shared<L>& shared;
  const Maps& maps;
  const Run& run;
  bool accumulate;

  __device__ __forceinline__ void load_w() const {
    mbarrier_arrive_expect_tx(&shared.w_full, 2 * L::kWeightBytes);
    for (int panel = 0; panel < 2; ++panel)
      for (int row = 0; row < L::kWidth; row += kExperts)  // twice for 32: high and middle
        bulk_load_2d(shared.w[panel] + row * 128, maps.w, &shared.w_full, run.column + 64 * panel,
                     0);
  }
  __device__ __forceinline__ void load_x(int step, int stage) const {
    mbarrier_arrive_expect_tx(&shared.full[stage], L::kStageBytes);
    for (int panel = 0; panel < 2; ++panel)
      bulk_load_2d(shared.x[stage][panel], maps.x, &shared.full[stage], run.column + 64 * panel,
                   step * kStepRows);
  }
  __device__ __forceinline__ void load_parts(int step, int stage) const {
    bulk_load_3d(shared.parts[stage], maps.parts, &shared.full[stage], 0, step * kStepRows, 0);
  }
  __device__ __forceinline__ void load_dx(int step, int slot) const {
    if (!accumulate) return mbarrier_arrive(&shared.dx_full[slot]);
    mbarrier_arrive_expect_tx(&shared.dx_full[slot], 2 * kPanelBytes);
    for (int panel = 0; panel < 2; ++panel)
      bulk_load_2d(shared.dx[slot][panel], maps.dx, &shared.dx_full[slot], run.column + 64 * panel,
                   step * kStepRows);
  }

  __device__ __forceinline__ void operator()() const {
    constexpr int kAhead = L::kStages < kDxSlots ? L::kStages : kDxSlots;
    const int ahead = min(kAhead, run.end - run.begin);
    load_w();
    for (int i = 0; i < ahead; ++i) {
      load_x(run.begin + i, i);
      load_dx(run.begin + i, i);
    }
    griddepcontrol_wait();
    RingPosition<L::kStages> at;
    RingPosition<kDxSlots> slot;
    for (int step = run.begin; step < run.end; ++step, at.next(), slot.next()) {
      const bool asked = step < run.begin + ahead;
      if (!asked) {
        mbarrier_wait(&shared.empty[at.stage], at.parity ^ 1U);
        load_x(step, at.stage);
      }
      load_parts(step, at.stage);
      if (asked) continue;
      mbarrier_wait(&shared.dx_empty[slot.stage], slot.parity ^ 1U);
      load_dx(step, slot.stage);
    }
  }
};

}  // namespace stowage::kernels::mixed
