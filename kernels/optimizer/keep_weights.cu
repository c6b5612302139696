// Weights as they are before a step, over all pieces in one launch (design in pieces.cuh). Accesses
// pass L2 by. Where the host has not asked, no thread reads or writes an element.
// Cost: 8 bytes a weight with an fp32 master.

#include "kernels/optimizer/keep_weights_launch.hpp"
#include "kernels/optimizer/pieces.cuh"
#include "kernels/optimizer/streams.cuh"

namespace stowage::kernels::optimizer {
namespace {

using execution::Bf16;

struct KeepStep {
  bool asked;

  __device__ explicit KeepStep(const std::int32_t* inputs) : asked(*inputs != 0) {}
  template <class W>
  static bool aligned(const KeptPointers<W>& piece) {
    return device::all_aligned(piece.weight, piece.kept);
  }
};

template <class W>
__device__ __forceinline__ void work4(const KeptPointers<W>& piece, const KeepStep& step,
                                      std::int64_t i) {
  if (step.asked) device::store4(piece.kept + i, device::load4(piece.weight + i));
}
template <class W>
__device__ __forceinline__ void work1(const KeptPointers<W>& piece, const KeepStep& step,
                                      std::int64_t i) {
  if (step.asked) piece.kept[i] = piece.weight[i];
}

}  // namespace

template <class W>
int launch_keep_weights(std::span<const KeptPointers<W>> pieces, const std::int32_t* asked,
                        void* stream) {
  return device::launch_pieces<KeepStep>(pieces, asked, stream);
}

template int launch_keep_weights(std::span<const KeptPointers<float>>, const std::int32_t*, void*);
template int launch_keep_weights(std::span<const KeptPointers<Bf16>>, const std::int32_t*, void*);

}  // namespace stowage::kernels::optimizer
