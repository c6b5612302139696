#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <span>

#include "kernels/optimizer/adamw.hpp"

namespace stowage::kernels::test {

/// Elements of a tensor from `first` on, as a shard of a bucket has them.
class AdamwPiece {
 public:
  AdamwPiece(const AdamwTensor& whole, std::int64_t first, std::int64_t elements) : piece_(whole) {
    piece_.elements = elements;
    execution::View* const views[] = {&piece_.parameter, &piece_.master, &piece_.gradient,
                                      &piece_.m, &piece_.v};
    for (std::size_t i = 0; i < std::size(views); ++i) {
      execution::View& view = *views[i];
      if (!view) continue;
      addresses_[i] = view.as<std::byte>() +
                      static_cast<std::size_t>(first) * execution::size_bytes(view.dtype());
      view.data = std::span<void* const>(&addresses_[i], 1);
    }
  }
  AdamwPiece(const AdamwPiece&) = delete;
  AdamwPiece& operator=(const AdamwPiece&) = delete;
  const AdamwTensor& tensor() const { return piece_; }

 private:
  AdamwTensor piece_;
  void* addresses_[5] = {};
};

}  // namespace stowage::kernels::test
