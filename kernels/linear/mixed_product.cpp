#include "kernels/linear/mixed_product.hpp"

#include <algorithm>

#include "execution/cuda_check.hpp"
#include "execution/error.hpp"
#include "kernels/linear/dense_product.hpp"
#include "kernels/linear/mixed_launch.hpp"

namespace stowage::kernels {
namespace {

using execution::Dtype;
using mixed::kParts;

constexpr std::int64_t kHalfBytes = kProductScratchBytes / 2;

// The scratch memory of a stream: the split gradient of a chunk of rows in the first half, and
// three copies of w or three dw in the second.
struct Scratch {
  std::uint16_t* parts;
  std::byte* factor;

  explicit Scratch(cudaStream_t stream)
      : parts(static_cast<std::uint16_t*>(product_scratch(stream))),
        factor(static_cast<std::byte*>(product_scratch(stream)) + kHalfBytes) {}
};

// Rows of one chunk: a multiple of 128, so that every chunk of an operand begins aligned.
std::int64_t chunk_rows(std::int64_t outputs) {
  const std::int64_t fit = kHalfBytes / (kParts * std::max<std::int64_t>(outputs, 1) *
                                         std::int64_t{sizeof(std::uint16_t)});
  STOWAGE_ASSERT(fit >= 128, "a product with an fp32 gradient of {} columns", outputs);
  return fit / 128 * 128;
}

// Whether three matrices (outputs, inputs) fit in half of the scratch memory.
bool fits(std::int64_t outputs, std::int64_t inputs, std::int64_t element_bytes) {
  return kParts * outputs * inputs * element_bytes <= kHalfBytes;
}

}  // namespace

void mixed_backward_input(std::int64_t rows, std::int64_t outputs, std::int64_t inputs,
                          const float* dy, const void* w, void* dx, bool accumulate,
                          cudaStream_t stream) {
  if (rows == 0 || inputs == 0) return;
  STOWAGE_ASSERT(fits(outputs, inputs, sizeof(std::uint16_t)),
                 "a product with an fp32 gradient and a weight ({}, {}) needs more than {} bytes",
                 outputs, inputs, kHalfBytes);
  const Scratch scratch(stream);
  const std::size_t w_bytes = static_cast<std::size_t>(outputs * inputs) * sizeof(std::uint16_t);
  for (std::size_t part = 0; part < kParts; ++part)
    STOWAGE_CUDA(cudaMemcpyAsync(scratch.factor + part * w_bytes, w, w_bytes,
                                 cudaMemcpyDeviceToDevice, stream));
  const std::int64_t chunk = chunk_rows(outputs);
  for (std::int64_t begin = 0; begin < rows; begin += chunk) {
    const std::int64_t count = std::min(chunk, rows - begin);
    STOWAGE_CUDA(mixed::launch_split(count, outputs, dy + begin * outputs, scratch.parts, stream));
    dense_product(dense_shape(count, inputs, kParts * outputs, Transpose::no, Transpose::no,
                              Dtype::bf16, Dtype::bf16, accumulate),
                  scratch.parts, scratch.factor, static_cast<std::uint16_t*>(dx) + begin * inputs,
                  stream);
  }
}

void mixed_backward_weight(std::int64_t rows, std::int64_t outputs, std::int64_t inputs,
                           const float* dy, const void* x, float* dw, bool accumulate,
                           cudaStream_t stream) {
  if (outputs == 0 || inputs == 0) return;
  const Scratch scratch(stream);
  const std::int64_t chunk = chunk_rows(outputs);
  // Three dw that do not fit are added up in place, a product for each part of a chunk.
  const bool in_place = !fits(outputs, inputs, sizeof(float));
  for (std::int64_t begin = 0; begin == 0 || begin < rows; begin += chunk) {
    const std::int64_t count = std::min(chunk, rows - begin);
    const auto* factor = static_cast<const std::uint16_t*>(x) + begin * inputs;
    STOWAGE_CUDA(mixed::launch_split(count, outputs, dy + begin * outputs, scratch.parts, stream));
    if (!in_place) {
      dense_product(dense_shape(kParts * outputs, inputs, count, Transpose::yes, Transpose::no,
                                Dtype::bf16, Dtype::fp32, begin > 0),
                    scratch.parts, factor, scratch.factor, stream);
      continue;
    }
    for (int part = kParts - 1; part >= 0; --part) {  // the smallest first
      ProductShape shape =
          dense_shape(outputs, inputs, count, Transpose::yes, Transpose::no, Dtype::bf16,
                      Dtype::fp32, accumulate || begin > 0 || part < kParts - 1);
      shape.a_stride = kParts * outputs;
      dense_product(shape, scratch.parts + part * outputs, factor, dw, stream);
    }
  }
  if (in_place) return;
  STOWAGE_CUDA(mixed::launch_join(outputs * inputs, reinterpret_cast<const float*>(scratch.factor),
                                  dw, accumulate, stream));
}

}  // namespace stowage::kernels
