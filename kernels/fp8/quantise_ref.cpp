#include <algorithm>
#include <cmath>

#include "execution/fp8.hpp"
#include "execution/host_loops.hpp"
#include "kernels/fp8/quantise.hpp"

namespace stowage::kernels {

using execution::Accumulation;

namespace {

constexpr std::int64_t kRows = 16;    // of a part of the loop
constexpr int kLeastExponent = -126;  // so that 1 / scale is finite in fp32

/// The least power of two by which `amax` can be divided and fit.
template <class Format>
double scale_for(double amax) {
  if (!std::isfinite(amax)) return std::nan("");
  const double limit = Format::largest();
  int exponent = amax == 0 ? kLeastExponent : std::ilogb(amax) - std::ilogb(limit);
  if (amax > std::ldexp(limit, exponent)) ++exponent;
  return std::ldexp(1.0, std::max(exponent, kLeastExponent));
}

}  // namespace

template <class S>
void LargestMagnitude::reference(const Operands<Pointers<S>>& o) const {
  using A = Accumulation<S>;
  A largest = 0;
  for (std::int64_t i = 0; i < rows * width; ++i) {
    const A magnitude = std::abs(static_cast<A>(o.x[i]));
    if (!(magnitude <= largest) && !std::isnan(largest)) largest = magnitude;
  }
  *o.amax = largest;
}

template <class S>
void Quantise::reference(const Operands<Pointers<S>>& o) const {
  execution::with_fp8_type(payload, [&]<class Format>() {
    const double scale = scale_for<Format>(static_cast<double>(*o.amax));
    *o.scale = static_cast<Accumulation<S>>(scale);
    execution::host_for(rows, kRows, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i)
        for (std::int64_t j = 0; j < width; ++j) {
          const Format value(static_cast<double>(o.x[i * width + j]) / scale);
          if (o.payload) o.payload[i * width + j] = value.bits;
          if (o.transposed) o.transposed[j * rows + i] = value.bits;
        }
    });
  });
}

STOWAGE_REFERENCES(LargestMagnitude)
STOWAGE_REFERENCES(Quantise)

}  // namespace stowage::kernels
