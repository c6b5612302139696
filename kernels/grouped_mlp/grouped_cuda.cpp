#include "kernels/grouped_mlp/grouped_cuda.hpp"

#include <algorithm>
#include <source_location>

#include "execution/error.hpp"
#include "kernels/hopper/tensor_map.hpp"
#include "kernels/machine.hpp"

namespace stowage::kernels::grouped {

using hopper::make_tensor_map;
using hopper::Swizzle;
using hopper::TensorMapType;

namespace {

constexpr std::int64_t kLimit = std::int64_t{1} << 31;

bool aligned(const void* address) { return reinterpret_cast<std::uintptr_t>(address) % 16 == 0; }

std::uint64_t extent(std::int64_t value) { return static_cast<std::uint64_t>(value); }

CUtensorMap weight_map(const GroupedCudaShape& s, const void* w, int box_rows) {
  const std::uint64_t extents[] = {extent(s.inputs), extent(s.outputs), extent(s.experts)};
  const std::uint64_t strides[] = {extents[0] * 2, extents[0] * extents[1] * 2};
  const std::uint32_t box[] = {64, static_cast<std::uint32_t>(box_rows), 1};
  return make_tensor_map(TensorMapType::bf16, w, extents, strides, box, Swizzle::b128);
}

}  // namespace

void check_shape(const GroupedCudaShape& s) {
  STOWAGE_ASSERT(s.experts > 0 && s.experts <= kMaxExperts, "grouped product of {} experts",
                 s.experts);
  STOWAGE_ASSERT(s.rows >= 0 && s.rows < kLimit && s.outputs > 0 && s.outputs < kLimit &&
                     s.inputs > 0 && s.inputs < kLimit,
                 "grouped product of {} rows, {} outputs, {} inputs", s.rows, s.outputs, s.inputs);
}

void check_launch(cudaError_t status, const char* kernel) {
  if (status != cudaSuccess) [[unlikely]] {
    execution::throw_call_failed("CUDA", kernel, static_cast<long long>(status),
                                 cudaGetErrorString(status), std::source_location::current());
  }
}

bool fast(const GroupedCudaShape& s, std::initializer_list<const void*> addresses) {
  return s.bf16 && s.rows > 0 && s.outputs % 8 == 0 && s.inputs % 8 == 0 &&
         std::all_of(addresses.begin(), addresses.end(), aligned) && machine().wgmma();
}

// Columns beyond the matrix cost a product each; columns that a transposed operand brings beyond
// the tile, as they come 64 at a time, only their way through L2: about a quarter of it.
int choose_width(std::int64_t columns, bool transposed) {
  int best = 0;
  std::int64_t least = 0;
  for (const int width : kTileWidths) {
    const int loaded = transposed ? (width + 63) / 64 * 64 : width;
    const std::int64_t cost = (columns + width - 1) / width * (4 * width + loaded - width);
    if (best == 0 || cost <= least) {
      best = width;
      least = cost;
    }
  }
  return best;
}

CUtensorMap matrix_map(const void* base, std::int64_t rows, std::int64_t columns, int box_rows) {
  const std::uint64_t extents[] = {extent(columns), extent(rows)};
  const std::uint64_t strides[] = {extents[0] * 2};
  const std::uint32_t box[] = {64, static_cast<std::uint32_t>(box_rows)};
  return make_tensor_map(TensorMapType::bf16, base, extents, strides, box, Swizzle::b128);
}

RowsMaps rows_maps(const GroupedCudaShape& s, const void* x, const void* w, Weights kind,
                   int width) {
  const std::int64_t depth = kind == Weights::transposed ? s.outputs : s.inputs;
  const auto box_of_w = [&](int tile_width) {
    if (kind == Weights::transposed) return kDepth;
    return kind == Weights::gated ? tile_width / 2 : tile_width;
  };
  return {.x = matrix_map(x, s.rows, depth, kTileRows),
          .w = weight_map(s, w, box_of_w(width)),
          .tall_x = matrix_map(x, s.rows, depth, kTallRows),
          .tall_w = weight_map(s, w, box_of_w(kTallWidth))};
}

CUtensorMap gradient_map(const GroupedCudaShape& s, const float* dw) {
  const std::uint64_t extents[] = {extent(s.inputs), extent(s.outputs), extent(s.experts)};
  const std::uint64_t strides[] = {extents[0] * 4, extents[0] * extents[1] * 4};
  const std::uint32_t box[] = {32, 64, 1};
  return make_tensor_map(TensorMapType::fp32, dw, extents, strides, box, Swizzle::b128);
}

SimpleParameters simple(const GroupedCudaShape& s, const void* a, const void* b,
                        const std::int32_t* offsets, void* out, bool accumulate) {
  return {.offsets = offsets,
          .a = a,
          .b = b,
          .out = out,
          .rows = s.rows,
          .experts = static_cast<int>(s.experts),
          .outputs = static_cast<int>(s.outputs),
          .inputs = static_cast<int>(s.inputs),
          .bf16 = s.bf16,
          .accumulate = accumulate};
}

}  // namespace stowage::kernels::grouped
