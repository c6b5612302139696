#include "kernels/conv1d/conv1d.hpp"

#include <algorithm>

#include "kernels/conv1d/conv1d_layout.hpp"
#include "kernels/cost.hpp"
#include "kernels/launch.hpp"
#include "kernels/partials.hpp"

namespace stowage::kernels {

using execution::Cost;
using execution::Dtype;

namespace {

std::string fault_of(std::int64_t width) {
  const bool served = width >= kConv1dMinWidth && width <= kConv1dMaxWidth;
  return served ? "" : "w has neither 2, 3 nor 4 taps";
}

template <class Op>
Conv1dCudaShape cuda_shape(const Op& op, std::int64_t x_stride, std::int64_t dx_stride) {
  return {.tokens = op.tokens,
          .channels = static_cast<int>(op.channels),
          .width = static_cast<int>(op.width),
          .x_stride = x_stride,
          .y_stride = op.channels,
          .dx_stride = dx_stride,
          .bf16_parameters = op.storage == Dtype::bf16};
}

bool aligned(const void* pointer) { return reinterpret_cast<std::uintptr_t>(pointer) % 16 == 0; }

/// The vector kernels take bf16 with rows that they can load by 8 channels.
bool by_vectors(const Conv1dCudaShape& shape, std::initializer_list<const void*> matrices) {
  return shape.bf16_parameters && shape.tokens > 0 && shape.channels % 8 == 0 &&
         shape.x_stride % 8 == 0 && shape.dx_stride % 8 == 0 &&
         std::ranges::all_of(matrices, aligned);
}

}  // namespace

template <class S>
int Conv1dForward::launch(const Operands<Pointers<S>>& o, void* stream) const {
  const Conv1dCudaShape shape = cuda_shape(*this, o.x.stride, 0);
  const Conv1dCudaForward args{
      .x = o.x.data, .w = o.w, .b = o.b, .seq_idx = o.seq_idx, .halo = o.halo, .y = o.y};
  const bool vectors = by_vectors(shape, {args.x, args.y, args.halo});
  return (vectors ? conv1d::launch_forward : conv1d::launch_simple_forward)(
      shape, args, static_cast<cudaStream_t>(stream));
}

std::string Conv1dForward::fault() const { return fault_of(width); }

// Flops: a multiply and an add for each tap, and about 5 for SiLU, 10 for its derivative.
Cost Conv1dForward::cost() const {
  return {(2.0 * static_cast<double>(width) + 5) * static_cast<double>(tokens * channels),
          2 * bytes(tokens * channels, storage) +
              bytes((width + (biased ? 1 : 0)) * channels, storage) + bytes(tokens, Dtype::int32)};
}

template <class S>
int Conv1dBackward::launch(const Operands<Pointers<S>>& o, void* stream) const {
  const Conv1dCudaShape shape = cuda_shape(*this, o.x.stride, o.dx.stride);
  const Conv1dCudaBackward args{.dy = o.dy,
                                .x = o.x.data,
                                .w = o.w,
                                .b = o.b,
                                .seq_idx = o.seq_idx,
                                .halo = o.halo,
                                .dx = o.dx.data,
                                .dhalo = o.dhalo,
                                .dw = o.dw,
                                .db = o.db,
                                .workspace = o.workspace,
                                .accumulate = accumulate};
  const bool vectors = by_vectors(shape, {args.x, args.dy, args.dx, args.halo, args.dhalo});
  return (vectors ? conv1d::launch_backward : conv1d::launch_simple_backward)(
      shape, args, static_cast<cudaStream_t>(stream));
}

std::string Conv1dBackward::fault() const { return fault_of(width); }

std::size_t Conv1dBackward::workspace_bytes() const {
  const auto room = [this](std::int64_t parts, std::size_t element_bytes) {
    return static_cast<std::size_t>(parts * conv1d::kSums * channels) * element_bytes;
  };
  const std::size_t host =
      room(partial_count(tokens), execution::size_bytes(execution::accumulation(storage)));
  // Of the GPU's kernels the simple ones have more partial sums; which run, only addresses decide.
  const std::size_t device = room(conv1d::strips({.tokens = tokens}), sizeof(float));
  return storage == Dtype::fp64 ? host : std::max(host, device);
}

Cost Conv1dBackward::cost() const {
  const std::int64_t filters = (width + (biased ? 1 : 0)) * channels;
  return {(6.0 * static_cast<double>(width) + 10) * static_cast<double>(tokens * channels),
          3 * bytes(tokens * channels, storage) + bytes(filters, storage) +
              bytes(filters, execution::accumulation(storage)) + bytes(tokens, Dtype::int32)};
}

STOWAGE_OPERATOR_RUN(Conv1dForward)
STOWAGE_OPERATOR_RUN(Conv1dBackward)
STOWAGE_LAUNCHES(Conv1dForward)
STOWAGE_LAUNCHES(Conv1dBackward)

}  // namespace stowage::kernels
