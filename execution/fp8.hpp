#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

#include "execution/dtype.hpp"

namespace stowage::execution {

/// The 8-bit floating formats of Micikevicius et al., arXiv 2209.05433, as the host holds them: the
/// bits that Hopper's conversions give. A value is rounded to nearest even; beyond the largest
/// finite one it becomes that one (saturation); NaN stays NaN.
template <int kExponentBits, int kMantissaBits>
struct Fp8 {
  static constexpr int kBias = (1 << (kExponentBits - 1)) - 1;
  /// e4m3 has NaN in place of its largest value alone; e5m2 has infinities as IEEE formats do.
  static constexpr bool kInfinities = kExponentBits == 5;
  static constexpr std::uint8_t kLargest = kInfinities ? 0x7b : 0x7e;

  std::uint8_t bits = 0;

  Fp8() = default;
  explicit Fp8(float value) : Fp8(static_cast<double>(value)) {}
  explicit Fp8(double value) : bits(round(value)) {}
  explicit operator double() const {
    const int exponent = (bits & 0x7f) >> kMantissaBits, mantissa = bits & kMantissas;
    const bool top = exponent == (1 << kExponentBits) - 1;
    double value = exponent == 0
                       ? std::ldexp(mantissa, 1 - kBias - kMantissaBits)
                       : std::ldexp(mantissa + kImplicit, exponent - kBias - kMantissaBits);
    if (top && kInfinities) value = mantissa == 0 ? HUGE_VAL : kNan;
    if (top && !kInfinities && mantissa == kMantissas) value = kNan;
    return std::copysign(value, (bits & 0x80) != 0 ? -1.0 : 1.0);
  }
  explicit operator float() const { return static_cast<float>(static_cast<double>(*this)); }

  /// The largest finite value: 448 or 57344.
  static double largest() {
    Fp8 value;
    value.bits = kLargest;
    return static_cast<double>(value);
  }

 private:
  static constexpr int kImplicit = 1 << kMantissaBits;
  static constexpr int kMantissas = kImplicit - 1;
  static constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

  static std::uint8_t round(double value) {
    if (std::isnan(value)) return 0x7f;
    const auto sign = static_cast<std::uint8_t>(std::signbit(value) ? 0x80 : 0);
    const double magnitude = std::fabs(value);
    if (magnitude >= largest()) return sign | kLargest;
    if (magnitude == 0) return sign;
    const int exponent = std::max(std::ilogb(magnitude), 1 - kBias);
    // Units in the last place; a whole binade more of them carries into the exponent by itself.
    const auto units =
        static_cast<int>(std::nearbyint(std::ldexp(magnitude, kMantissaBits - exponent)));
    const int code = ((exponent + kBias - 1) << kMantissaBits) + units;
    return sign | static_cast<std::uint8_t>(std::min<int>(code, kLargest));
  }
};

using E4m3 = Fp8<4, 3>;  ///< values up to 448, 4 significant bits
using E5m2 = Fp8<5, 2>;  ///< values up to 57344, 3 significant bits

/// Calls `f.template operator()<T>()` with the C++ type of an 8-bit floating dtype.
/// @throws Error for another dtype
template <class F>
decltype(auto) with_fp8_type(Dtype dtype, F&& f) {
  if (dtype == Dtype::e4m3) return f.template operator()<E4m3>();
  if (dtype == Dtype::e5m2) return f.template operator()<E5m2>();
  throw_no_form("8-bit floating elements", dtype);
}

}  // namespace stowage::execution
