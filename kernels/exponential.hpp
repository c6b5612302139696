#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

namespace stowage::kernels {

/// exp(x) in a form that compilers turn into vector code, which they do not with std::exp.
inline double exponential(double x) { return std::exp(x); }

/// The same in fp32, within 2 units in the last place. 0 below -87.3 and infinity above 88.3, a
/// little inside of the range of normal numbers; NaN stays NaN.
///
/// exp(x) = 2^n exp(r) with n = round(x / ln 2) and |r| <= ln(2) / 2, r from ln 2 in two parts
/// (Cody and Waite, Software Manual for the Elementary Functions, 1980), exp(r) by the polynomial
/// of Cephes' expf.
inline float exponential(float x) {
  constexpr float kLowest = -87.3F, kHighest = 88.3F;
  constexpr float kLog2E = 1.44269504F, kLn2High = 0.693359375F, kLn2Low = -2.12194440e-4F;
  // Adding 1.5 * 2^23 leaves the rounded integer in the low bits of the mantissa.
  constexpr float kRound = 12582912.0F;
  const float clamped = x < kLowest ? kLowest : (x > kHighest ? kHighest : x);
  const float shifted = clamped * kLog2E + kRound;
  const float n = shifted - kRound;
  const float r = clamped - n * kLn2High - n * kLn2Low;
  float p = 1.9875691500e-4F;
  p = p * r + 1.3981999507e-3F;
  p = p * r + 8.3334519073e-3F;
  p = p * r + 4.1665795894e-2F;
  p = p * r + 1.6666665459e-1F;
  p = p * r + 5.0000001201e-1F;
  p = p * r * r + r + 1.0F;
  const auto exponent = (std::bit_cast<std::uint32_t>(shifted) + 127U) << 23;
  const float value = p * std::bit_cast<float>(exponent);
  return x < kLowest ? 0.0F : (x > kHighest ? std::numeric_limits<float>::infinity() : value);
}

}  // namespace stowage::kernels
