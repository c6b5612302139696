#pragma once

#include "kernels/operator.hpp"

namespace stowage::kernels {

/// The inputs of all microbatches of a step arrive at once, stacked; which one is at work is a
/// number on the device, so that the same ops serve every period of a repeating section.

/// row = stack[index[0]].
struct TakeRow {
  static constexpr std::string_view kName = "take_row";
  std::int64_t rows, width;  ///< of the stack

  template <class T>
  struct Operands {
    Of<T, const std::int32_t> stack, index;
    Of<T, std::int32_t> row;
  };
  void each(auto&& f, auto&... o) const {
    f(in("stack", execution::Dtype::int32, {rows, width}), o.stack...);
    f(in("index", execution::Dtype::int32, {1}), o.index...);
    f(out("row", execution::Dtype::int32, {width}), o.row...);
  }
  execution::Cost cost() const { return {0, 8.0 * static_cast<double>(width)}; }
  void run(execution::Queue& queue, const Operands<execution::View>& views) const;
};

/// ++index[0].
struct AdvanceIndex {
  static constexpr std::string_view kName = "advance_index";

  template <class T>
  struct Operands {
    Of<T, std::int32_t> index;
  };
  void each(auto&& f, auto&... o) const {
    f(sum("index", true, execution::Dtype::int32, {1}), o.index...);
  }
  execution::Cost cost() const { return {}; }
  void run(execution::Queue& queue, const Operands<execution::View>& views) const;
};

}  // namespace stowage::kernels
