#pragma once

#include "kernels/grouped_mlp/grouped_mainloop.cuh"

/// How the tiles of a weight gradient leave: in boxes of 64 rows by 32 columns of fp32, through a
/// ring of slots in shared memory. Consumers fill slots; one thread hands them to the copy engine
/// and takes them back. So a warpgroup is done with its sums before memory is, and multiplies
/// again. To add, another thread has the engine bring what is in memory into each slot as soon as
/// the slot is free, across tiles.
namespace stowage::kernels::grouped {

/// How a tile leaves: stored; or what is there read, added to and stored.
enum class Way { store, add };

/// Sizes, with the operands `O` of the products.
template <class O>
struct BoxSizes {
  static constexpr int kBytes = 64 * 128;
  static constexpr int kAcross = O::kWidth / 32;
  static constexpr int kPerTile = O::kBlocks * kAcross;
  static_assert(kPerTile >= O::kSlots, "a warpgroup waits for every slot in each of its tiles");
};

/// The slots. A slot is `ready` for a warpgroup when it is free, or when what is to be added to has
/// arrived, and `filled` when all four warps have written their rows.
template <class O>
struct BoxRing {
  alignas(1024) unsigned char box[O::kSlots][BoxSizes<O>::kBytes];
  Mbarrier free[O::kSlots];  // for what is to be added to
  Mbarrier ready[O::kSlots], filled[O::kSlots];
  Mbarrier turn[2];  // of each consumer warpgroup to fill
};

template <class O>
__device__ __forceinline__ void init_box_barriers(BoxRing<O>& ring) {
  if (threadIdx.x == 0) {
    for (int i = 0; i < O::kSlots; ++i) {
      mbarrier_init(&ring.free[i], 1);
      mbarrier_init(&ring.ready[i], 1);
      mbarrier_init(&ring.filled[i], 4);
    }
    mbarrier_init(&ring.turn[0], 4);
    mbarrier_init(&ring.turn[1], 4);
    mbarrier_init_fence();
  }
}

/// The boxes of all tiles of a block in order.
template <class O, class Tiles>
class BoxOrder {
 public:
  __device__ __forceinline__ explicit BoxOrder(const Tiles& tiles) : tiles_(tiles) {}

  /// Whether there is another box.
  __device__ __forceinline__ bool next() {
    if (++box_ < BoxSizes<O>::kPerTile) return true;
    box_ = 0;
    return tiles_.next(tile_);
  }
  __device__ __forceinline__ int column() const {
    return tile_.column + box_ % BoxSizes<O>::kAcross * 32;
  }
  __device__ __forceinline__ int row() const {
    return tile_.row + box_ / BoxSizes<O>::kAcross * 64;
  }
  __device__ __forceinline__ int expert() const { return tile_.expert; }

 private:
  Tiles tiles_;
  Tile tile_{};
  int box_ = BoxSizes<O>::kPerTile - 1;
};

/// Brings what is to be added to into the slots: one thread.
template <class O, class Tiles>
__device__ __forceinline__ void load_boxes(BoxRing<O>& ring, const CUtensorMap& map,
                                           const Tiles& tiles) {
  BoxOrder<O, Tiles> boxes(tiles);
  RingPosition<O::kSlots> at;
  while (boxes.next()) {
    mbarrier_wait(&ring.free[at.stage], at.parity ^ 1U);
    Mbarrier* ready = &ring.ready[at.stage];
    mbarrier_arrive_expect_tx(ready, BoxSizes<O>::kBytes);
    bulk_load_3d(ring.box[at.stage], &map, ready, boxes.column(), boxes.row(), boxes.expert());
    at.next();
  }
}

/// Stores the slots and gives them back: one thread.
template <class O, class Tiles>
__device__ __forceinline__ void store_boxes(BoxRing<O>& ring, const CUtensorMap& map,
                                            const Tiles& tiles) {
  BoxOrder<O, Tiles> boxes(tiles);
  RingPosition<O::kSlots> at;
  Mbarrier* back = O::kWay == Way::add ? ring.free : ring.ready;
  int read = 0, pending = 0;  // stores that may still read their slots, from slot `read` on
  const auto give_back = [&] {
    mbarrier_arrive(&back[read]);
    if (++read == O::kSlots) read = 0;
    --pending;
  };
  while (boxes.next()) {
    if (pending > 0 && !mbarrier_test_wait(&ring.filled[at.stage], at.parity)) {
      bulk_wait_group_read<0>();
      while (pending > 0) give_back();
    }
    mbarrier_wait(&ring.filled[at.stage], at.parity);
    bulk_store_3d(&map, ring.box[at.stage], boxes.column(), boxes.row(), boxes.expert());
    bulk_commit_group();
    at.next();
    if (++pending > O::kUnread) {
      bulk_wait_group_read<O::kUnread>();
      give_back();
    }
  }
  bulk_wait_group<0>();
}

/// The way from a warpgroup's sums to the slots. Warpgroups fill in the order in which their tiles
/// end: a barrier's parity tells neighbouring rounds apart and no more, so none may wait for a slot
/// before the one whose tile ended before has had it.
template <class O>
class BoxFiller {
 public:
  __device__ __forceinline__ BoxFiller(BoxRing<O>& ring, int group) : ring_(ring), group_(group) {}

  /// Moves over a tile of the other warpgroup.
  __device__ __forceinline__ void skip() {
    others_before_ = true;
    at_.stage += BoxSizes<O>::kPerTile;
    while (at_.stage >= O::kSlots) {
      at_.stage -= O::kSlots;
      at_.parity ^= 1U;
    }
  }

  /// `others_next`: the tile that ends next is the other warpgroup's.
  __device__ __forceinline__ void fill(const Sums<O>& sums, bool others_next) {
    constexpr std::uint32_t kBefore = O::kWay == Way::add ? 0 : 1;  // slots are free at first
    const bool first_lane = threadIdx.x % 32 == 0;
    if (others_before_) {
      mbarrier_wait(&ring_.turn[group_], turn_parity_);
      turn_parity_ ^= 1U;
      others_before_ = false;
    }
#pragma unroll
    for (int box = 0; box < BoxSizes<O>::kPerTile; ++box) {
      const int slot = at_.stage;
      mbarrier_wait(&ring_.ready[slot], at_.parity ^ kBefore);
      if (box + 1 == BoxSizes<O>::kPerTile && others_next && first_lane)
        mbarrier_arrive(&ring_.turn[group_ ^ 1]);
      write(ring_.box[slot], sums[box / BoxSizes<O>::kAcross], box % BoxSizes<O>::kAcross * 16);
      fence_proxy_async();
      __syncwarp();
      if (first_lane) mbarrier_arrive(&ring_.filled[slot]);
      at_.next();
    }
  }

 private:
  /// This warp's 16 rows by 32 columns, the sums from `first` on, in the swizzled rows of a box.
  static __device__ __forceinline__ void write(unsigned char* box,
                                               const float (&sums)[O::kWidth / 2], int first) {
    const int lane = static_cast<int>(threadIdx.x % 32);
    const int row = static_cast<int>(threadIdx.x / 32 % 4) * 16 + lane / 4;
#pragma unroll
    for (int i = 0; i < 8; ++i) {  // rows of a thread lie 8 apart
      const int at = (row + i % 2 * 8) * 128 + i / 2 * 32 + lane % 4 * 8;
      auto* to =
          reinterpret_cast<float2*>(box + swizzled<Swizzle::b128>(static_cast<std::uint32_t>(at)));
      float2 value{sums[first + 2 * i], sums[first + 2 * i + 1]};
      if constexpr (O::kWay == Way::add) {
        const float2 old = *to;
        value.x += old.x;
        value.y += old.y;
      }
      *to = value;
    }
  }

  BoxRing<O>& ring_;
  RingPosition<O::kSlots> at_;
  int group_;
  std::uint32_t turn_parity_ = 0;
  bool others_before_ = false;  // since this warpgroup's last tile
};

}  // namespace stowage::kernels::grouped
