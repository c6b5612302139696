#include "kernels/linear/mixed_backward.hpp"

#include <algorithm>

#include "execution/cuda_check.hpp"
#include "kernels/hopper/tensor_map.hpp"
#include "kernels/linear/dense_product.hpp"
#include "kernels/linear/mixed_launch.hpp"
#include "kernels/machine.hpp"

namespace stowage::kernels {
namespace {

using mixed::BackwardSizes;
using mixed::kStepRows;

constexpr std::int64_t kBlocks = 132;  // of one wave: a constant, so that sums keep their order
constexpr std::int64_t kHalfBytes = kProductScratchBytes / 2;

bool aligned(const void* address) { return reinterpret_cast<std::uintptr_t>(address) % 16 == 0; }

std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

std::uint64_t extent(std::int64_t value) { return static_cast<std::uint64_t>(value); }

int padded_experts(std::int64_t outputs) { return outputs <= 32 ? 32 : outputs <= 64 ? 64 : 128; }

BackwardSizes sizes_of(std::int64_t rows, std::int64_t outputs, std::int64_t inputs, int padded) {
  BackwardSizes s;
  s.rows = rows;
  s.experts = static_cast<int>(outputs);
  s.padded = padded;
  s.width = static_cast<int>(inputs);
  s.steps = static_cast<int>(ceil_div(rows, kStepRows));
  s.slices = static_cast<int>(ceil_div(inputs, mixed::kSliceColumns));
  const std::int64_t fit = kHalfBytes / (outputs * inputs * std::int64_t{sizeof(float)});
  s.splits =
      static_cast<int>(std::clamp<std::int64_t>(std::min(kBlocks / s.slices, fit), 1, s.steps));
  return s;
}

// A row-major matrix in boxes of 64 columns; zeros beyond it.
CUtensorMap column_boxes(const void* base, std::int64_t rows, std::int64_t columns, int box_rows) {
  const std::uint64_t extents[] = {extent(columns), extent(rows)};
  const std::uint64_t strides[] = {extents[0] * 2};
  const std::uint32_t box[] = {64, static_cast<std::uint32_t>(box_rows)};
  return hopper::make_tensor_map(hopper::TensorMapType::bf16, base, extents, strides, box,
                                 hopper::Swizzle::b128);
}

// The parts, in boxes of all their panels.
CUtensorMap parts_map(const void* base, const BackwardSizes& s) {
  const int panels = mixed::columns(s.padded) / 64;
  const std::uint64_t extents[] = {64, extent(s.rows), extent(panels)};
  const std::uint64_t strides[] = {extent(panels) * 128, 128};
  const std::uint32_t box[] = {64, kStepRows, static_cast<std::uint32_t>(panels)};
  return hopper::make_tensor_map(hopper::TensorMapType::bf16, base, extents, strides, box,
                                 hopper::Swizzle::b128);
}

}  // namespace

bool mixed_backward_fits(std::int64_t rows, std::int64_t outputs, std::int64_t inputs,
                         std::initializer_list<const void*> operands) {
  constexpr std::int64_t kMost = std::int64_t{1} << 30;
  return machine().wgmma() && rows > 0 && rows < kMost && outputs > 0 && outputs <= 128 &&
         inputs > 0 && inputs < kMost && inputs % 8 == 0 &&
         std::all_of(operands.begin(), operands.end(), aligned) &&
         outputs * inputs * std::int64_t{sizeof(float)} <= kHalfBytes;
}

void mixed_backward(std::int64_t rows, std::int64_t outputs, std::int64_t inputs, const float* dy,
                    const void* x, const void* w, void* dx, bool accumulate_dx, float* dw,
                    bool accumulate_dw, cudaStream_t stream) {
  auto* scratch = static_cast<std::byte*>(product_scratch(stream));
  auto* partial = reinterpret_cast<float*>(scratch + kHalfBytes);
  const int padded = padded_experts(outputs);
  const std::int64_t chunk = kHalfBytes / (std::int64_t{2} * mixed::columns(padded)) / 128 * 128;
  for (std::int64_t begin = 0; begin < rows; begin += chunk) {
    const BackwardSizes s = sizes_of(std::min(chunk, rows - begin), outputs, inputs, padded);
    const std::int64_t first = begin * inputs;
    STOWAGE_CUDA(mixed::launch_split_panels(s, dy + begin * outputs, scratch, stream));
    STOWAGE_CUDA(mixed::launch_both(
        s, parts_map(scratch, s),
        column_boxes(static_cast<const std::uint16_t*>(x) + first, s.rows, inputs, kStepRows),
        column_boxes(w, outputs, inputs, padded),
        column_boxes(static_cast<std::uint16_t*>(dx) + first, s.rows, inputs, kStepRows),
        accumulate_dx, partial, stream));
    STOWAGE_CUDA(mixed::launch_sum_runs(s, partial, dw, accumulate_dw || begin > 0, stream));
  }
}

}  // namespace stowage::kernels
