#include "kernels/fp8/quantise.hpp"

#include <fmt/core.h>

#include "kernels/cost.hpp"
#include "kernels/fp8/quantise_launch.hpp"
#include "kernels/launch.hpp"

namespace stowage::kernels {

using execution::Cost;
using execution::Dtype;

template <class S>
int LargestMagnitude::launch(const Operands<Pointers<S>>& o, void* stream) const {
  return fp8::launch(
      fp8::LargestArgs<S>{
          .rows = rows, .width = width, .activation = activation, .x = o.x, .amax = o.amax},
      stream);
}

std::string LargestMagnitude::fault() const {
  if (!activation || width % 16 == 0) return {};
  return fmt::format("act(x) has {} columns, they must be a multiple of 16", width);
}

Cost LargestMagnitude::cost() const {
  return {0, bytes(rows * source_width(activation, width), storage)};
}

template <class S>
int JoinLargestMagnitude::launch(const Operands<Pointers<S>>& o, void* stream) const {
  return fp8::launch(
      fp8::JoinLargestArgs<S>{
          .rows = rows, .width = width, .stride = o.x.stride, .x = o.x.data, .amax = o.amax},
      stream);
}

Cost JoinLargestMagnitude::cost() const { return {0, bytes(rows * width, storage)}; }

namespace {

std::string payload_fault(Dtype payload, std::string_view of, std::int64_t rows,
                          std::int64_t width) {
  if (payload != Dtype::e4m3 && payload != Dtype::e5m2)
    return fmt::format("the payload is {}, it must be e4m3 or e5m2", name(payload));
  if (rows % 16 != 0 || width % 16 != 0)
    return fmt::format("{} is ({}, {}), both must be multiples of 16", of, rows, width);
  return {};
}

}  // namespace

std::string Quantise::fault() const { return payload_fault(payload, "x", rows, width); }

template <class S>
int Quantise::launch(const Operands<Pointers<S>>& o, void* stream) const {
  return fp8::launch(fp8::QuantiseArgs<S>{.rows = rows,
                                          .width = width,
                                          .activation = activation,
                                          .dtype = payload,
                                          .x = o.x,
                                          .amax = o.amax,
                                          .parts = parts,
                                          .payload = o.payload,
                                          .scale = o.scale,
                                          .transposed = o.transposed,
                                          .transposed_scale = o.transposed_scale},
                     stream);
}

Cost Quantise::cost() const {
  const int written = (plain ? 1 : 0) + (transposed ? 1 : 0);
  return {0, bytes(rows * LargestMagnitude::source_width(activation, width), storage) +
                 written * bytes(rows * width, payload)};
}

std::string TransposePayload::fault() const {
  return payload_fault(payload, "the payload", rows, width);
}

template <class S>
int TransposePayload::launch(const Operands<Pointers<S>>& o, void* stream) const {
  return fp8::launch(
      fp8::TransposeArgs{
          .rows = rows, .width = width, .payload = o.payload, .transposed = o.transposed},
      stream);
}

Cost TransposePayload::cost() const { return {0, 2 * bytes(rows * width, payload)}; }

STOWAGE_OPERATOR_RUN(LargestMagnitude)
STOWAGE_OPERATOR_RUN(JoinLargestMagnitude)
STOWAGE_OPERATOR_RUN(Quantise)
STOWAGE_OPERATOR_RUN(TransposePayload)

}  // namespace stowage::kernels
