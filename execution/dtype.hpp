#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace stowage::execution {

/// Element types of a buffer. fp64 is for the host and its tests; uint8 is for workspaces; e4m3 and
/// e5m2 are the payload of quantised tensors (fp8.hpp), which a scale belongs to.
enum class Dtype : std::uint8_t { fp64, fp32, bf16, int32, int64, uint8, e4m3, e5m2 };

/// Ends a call with a dtype that it has no form for: "<what> of <dtype>". @throws Error
[[noreturn]] void throw_no_form(std::string_view what, Dtype dtype);

/// Bytes of one element.
constexpr std::size_t size_bytes(Dtype dtype) {
  switch (dtype) {
    case Dtype::fp64:
    case Dtype::int64:
      return 8;
    case Dtype::fp32:
    case Dtype::int32:
      return 4;
    case Dtype::bf16:
      return 2;
    case Dtype::uint8:
    case Dtype::e4m3:
    case Dtype::e5m2:
      return 1;
  }
  return 0;
}

/// "fp64", "fp32", "bf16", "int32", "int64", "uint8", "e4m3" or "e5m2".
constexpr std::string_view name(Dtype dtype) {
  switch (dtype) {
    case Dtype::fp64:
      return "fp64";
    case Dtype::fp32:
      return "fp32";
    case Dtype::bf16:
      return "bf16";
    case Dtype::int32:
      return "int32";
    case Dtype::int64:
      return "int64";
    case Dtype::uint8:
      return "uint8";
    case Dtype::e4m3:
      return "e4m3";
    case Dtype::e5m2:
      return "e5m2";
  }
  return "?";
}

/// The type in which sums, norms, states and losses are kept: the wider of fp32 and storage.
/// @throws Error if storage is no floating type
constexpr Dtype accumulation(Dtype storage) {
  switch (storage) {
    case Dtype::fp64:
      return Dtype::fp64;
    case Dtype::fp32:
    case Dtype::bf16:
      return Dtype::fp32;
    case Dtype::int32:
    case Dtype::int64:
    case Dtype::uint8:
    case Dtype::e4m3:
    case Dtype::e5m2:
      break;
  }
  throw_no_form("sums", storage);
}

/// Unit roundoff of a floating type; 0 for integers. Tolerances of tests derive from it.
constexpr double epsilon(Dtype dtype) {
  switch (dtype) {
    case Dtype::fp64:
      return 0x1p-53;
    case Dtype::fp32:
      return 0x1p-24;
    case Dtype::bf16:
      return 0x1p-8;
    case Dtype::e4m3:
      return 0x1p-4;
    case Dtype::e5m2:
      return 0x1p-3;
    case Dtype::int32:
    case Dtype::int64:
    case Dtype::uint8:
      break;
  }
  return 0;
}

/// A bfloat16 on the host: the upper half of an fp32, rounded to nearest even; NaN stays NaN.
struct Bf16 {
  std::uint16_t bits = 0;

  Bf16() = default;
  constexpr explicit Bf16(float value) : bits(round(std::bit_cast<std::uint32_t>(value))) {}
  constexpr explicit Bf16(double value) : Bf16(static_cast<float>(value)) {}
  constexpr explicit operator float() const {
    return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
  }
  constexpr explicit operator double() const { return static_cast<float>(*this); }

 private:
  static constexpr std::uint16_t round(std::uint32_t word) {
    if ((word & 0x7fffffffU) > 0x7f800000U) return static_cast<std::uint16_t>((word >> 16) | 0x40U);
    return static_cast<std::uint16_t>((word + 0x7fffU + ((word >> 16) & 1U)) >> 16);
  }
};

namespace detail {
template <class T>
struct StorageType;  // other types store nothing
template <>
struct StorageType<double> {
  using Sums = double;
  static constexpr Dtype kDtype = Dtype::fp64;
};
template <>
struct StorageType<float> {
  using Sums = float;
  static constexpr Dtype kDtype = Dtype::fp32;
};
template <>
struct StorageType<Bf16> {
  using Sums = float;
  static constexpr Dtype kDtype = Dtype::bf16;
};
}  // namespace detail

/// The C++ accumulation type of a storage type: double for double, float for float and Bf16.
template <class Storage>
using Accumulation = typename detail::StorageType<Storage>::Sums;

/// The dtype of a storage type.
template <class Storage>
constexpr Dtype kDtypeOf = detail::StorageType<Storage>::kDtype;

/// Calls `f.template operator()<T>()` with the C++ type of a floating storage dtype.
/// @throws Error for another dtype
template <class F>
decltype(auto) with_storage_type(Dtype dtype, F&& f) {
  switch (dtype) {
    case Dtype::fp64:
      return f.template operator()<double>();
    case Dtype::fp32:
      return f.template operator()<float>();
    case Dtype::bf16:
      return f.template operator()<Bf16>();
    case Dtype::int32:
    case Dtype::int64:
    case Dtype::uint8:
    case Dtype::e4m3:
    case Dtype::e5m2:
      break;
  }
  throw_no_form("floating elements", dtype);
}

/// The same with the C++ type of an accumulation dtype: double or float.
template <class F>
decltype(auto) with_accumulation_type(Dtype dtype, F&& f) {
  switch (dtype) {
    case Dtype::fp64:
      return f.template operator()<double>();
    case Dtype::fp32:
      return f.template operator()<float>();
    case Dtype::bf16:
    case Dtype::int32:
    case Dtype::int64:
    case Dtype::uint8:
    case Dtype::e4m3:
    case Dtype::e5m2:
      break;
  }
  throw_no_form("sums", dtype);
}

}  // namespace stowage::execution
