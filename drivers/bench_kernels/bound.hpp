#pragma once

#include <string>
#include <vector>

#include "drivers/bench_kernels/operand.hpp"
#include "execution/tensor.hpp"

namespace stowage::drivers::bench {

/// A piece of device memory as the queue forms of operators take it. Make it once: views point
/// into it.
class Bound {
 public:
  explicit Bound(const Operand& operand)
      : Bound(operand.name(), operand.dtype(), operand.shape(), operand.data()) {}
  Bound(std::string name, execution::Dtype dtype, std::vector<std::int64_t> shape, void* data)
      : address_(data) {
    info_.name = std::move(name);
    info_.buffers.push_back({"payload", dtype, std::move(shape)});
  }

  execution::View view() const { return {std::span<void* const>(&address_, 1), &info_}; }
  operator execution::View() const { return view(); }

 private:
  execution::TensorInfo info_;
  void* address_;
};

}  // namespace stowage::drivers::bench
