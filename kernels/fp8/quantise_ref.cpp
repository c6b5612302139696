#include <algorithm>
#include <cmath>

#include "execution/fp8.hpp"
#include "execution/host_loops.hpp"
#include "kernels/fp8/quantise.hpp"
#include "kernels/magnitude.hpp"
#include "kernels/silu.hpp"

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

/// Calls take(row, column, value) for every value that is quantised, as storage holds it.
template <class S, class Take>
void each_value(std::optional<Activation> activation, const S* x, std::int64_t begin,
                std::int64_t end, std::int64_t width, const Take& take) {
  using A = Accumulation<S>;
  const std::int64_t of_row = LargestMagnitude::source_width(activation, width);
  for (std::int64_t i = begin; i < end; ++i) {
    const S* row = x + i * of_row;
    for (std::int64_t j = 0; j < width; ++j) {
      S value = row[j];
      if (activation == Activation::squared_relu) {
        const A positive = std::max(static_cast<A>(row[j]), A{0});
        value = static_cast<S>(positive * positive);
      } else if (activation == Activation::swiglu) {
        value = static_cast<S>(silu(static_cast<A>(row[j])) * static_cast<A>(row[width + j]));
      }
      take(i, j, static_cast<A>(value));
    }
  }
}

}  // namespace

template <class S>
void LargestMagnitude::reference(const Operands<Pointers<S>>& o) const {
  using A = Accumulation<S>;
  *o.amax = 0;
  each_value(activation, o.x, 0, rows, width,
             [&](std::int64_t, std::int64_t, A value) { add_largest(*o.amax, value); });
}

template <class S>
void JoinLargestMagnitude::reference(const Operands<Pointers<S>>& o) const {
  for (std::int64_t i = 0; i < rows; ++i)
    add_largest(*o.amax, largest_magnitude(o.x.row(i), width));
}

template <class S>
void Quantise::reference(const Operands<Pointers<S>>& o) const {
  using A = Accumulation<S>;
  execution::with_fp8_type(payload, [&]<class Format>() {
    const double scale =
        scale_for<Format>(static_cast<double>(largest_magnitude(o.amax, std::int64_t{parts})));
    if (o.scale) *o.scale = static_cast<A>(scale);
    if (o.transposed_scale) *o.transposed_scale = static_cast<A>(scale);
    execution::host_for(rows, kRows, [&](std::int64_t begin, std::int64_t end) {
      each_value(activation, o.x, begin, end, width, [&](std::int64_t i, std::int64_t j, A x) {
        const Format value(static_cast<double>(x) / scale);
        if (o.payload) o.payload[i * width + j] = value.bits;
        if (o.transposed) o.transposed[j * rows + i] = value.bits;
      });
    });
  });
}

template <class S>
void TransposePayload::reference(const Operands<Pointers<S>>& o) const {
  execution::host_for(rows, kRows, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i)
      for (std::int64_t j = 0; j < width; ++j)
        o.transposed[j * rows + i] = o.payload[i * width + j];
  });
}

STOWAGE_REFERENCES(LargestMagnitude)
STOWAGE_REFERENCES(JoinLargestMagnitude)
STOWAGE_REFERENCES(Quantise)
STOWAGE_REFERENCES(TransposePayload)

}  // namespace stowage::kernels
