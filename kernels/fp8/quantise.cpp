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
  return fp8::launch_largest_magnitude(rows * width, o.x, o.amax, stream);
}

Cost LargestMagnitude::cost() const { return {0, bytes(rows * width, storage)}; }

std::string Quantise::fault() const {
  if (payload != Dtype::e4m3 && payload != Dtype::e5m2)
    return fmt::format("the payload is {}, it must be e4m3 or e5m2", name(payload));
  if (rows % 16 != 0 || width % 16 != 0)
    return fmt::format("x is ({}, {}), both must be multiples of 16", rows, width);
  return {};
}

template <class S>
int Quantise::launch(const Operands<Pointers<S>>& o, void* stream) const {
  return fp8::launch_quantise(fp8::QuantiseArgs<S>{.rows = rows,
                                                   .width = width,
                                                   .dtype = payload,
                                                   .x = o.x,
                                                   .amax = o.amax,
                                                   .payload = o.payload,
                                                   .transposed = o.transposed,
                                                   .scale = o.scale},
                              stream);
}

Cost Quantise::cost() const {
  const int written = (plain ? 1 : 0) + (transposed ? 1 : 0);
  return {0, bytes(rows * width, storage) + written * bytes(rows * width, payload)};
}

STOWAGE_OPERATOR_RUN(LargestMagnitude)
STOWAGE_OPERATOR_RUN(Quantise)

}  // namespace stowage::kernels
