#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "execution/dtype.hpp"

namespace stowage::results {

/// The digest of a tensor's bytes (kernels/digest has the formula), made of any parts of it in any
/// order: those who write or read parts of one tensor add up what they have found.
class TensorDigest {
 public:
  using Sums = std::array<std::uint64_t, 2>;

  TensorDigest(std::string_view name, execution::Dtype dtype);

  /// Adds whole elements, of which the first is element `first` of the tensor in row-major order.
  void add(std::int64_t first, std::span<const std::byte> elements);
  void add(const Sums& others);
  const Sums& sums() const { return sums_; }
  /// 32 hexadecimal digits.
  std::string text() const;

 private:
  template <class Word>
  void add_words(std::int64_t first, const std::byte* words, std::int64_t count);

  execution::Dtype dtype_;
  Sums keys_;
  Sums sums_ = {0, 0};
};

}  // namespace stowage::results
