#pragma once

#include <deque>
#include <vector>

#include "ctest/kernels/support.hpp"
#include "kernels/optimizer/adamw.hpp"

namespace stowage::kernels::test {

/// Elements [first, first + count) of a tensor as a tensor of their own, as a shard of a bucket has
/// them.
class Part {
 public:
  Part(const View& whole, std::int64_t first, std::int64_t count) : info_(*whole.info) {
    info_.buffers[0].shape = {count};
    address_ = whole.as<std::byte>() +
               static_cast<std::size_t>(first) * execution::size_bytes(whole.dtype());
  }
  View view() const { return {std::span<void* const>(&address_, 1), &info_}; }

 private:
  execution::TensorInfo info_;
  void* address_;
};

/// Operands of Adamw that are parts of tensors.
struct AdamwParts {
  void add(const Adamw::Tensors<View>& whole, std::int64_t first, std::int64_t elements,
           double decay, double lr = 1) {
    const auto part = [&](const View& view) {
      return view ? parts.emplace_back(view, first, elements).view() : View{};
    };
    tensors.push_back({part(whole.parameter.view), part(whole.master.view),
                       part(whole.gradient.view), part(whole.m.view), part(whole.v.view)});
    pieces.push_back({elements, decay, lr, 7, {}});
    pieces.back().index.first = first;
  }

  std::vector<Adamw::Piece> pieces;
  ListOf<View, Adamw::Tensors> tensors;
  std::deque<Part> parts = {};  ///< which the views point into
};

}  // namespace stowage::kernels::test
