#pragma once

#include <memory>

#include "layers/recording/recorder.hpp"

namespace stowage::layers {

/// Rows of a matrix, as a use of their elements and as the matrix that a kernel sees.
class RowRange {
 public:
  RowRange(const Recorder& recorder, const SomeRows& some)
      : RowRange(recorder.buffer(some.whole), some) {}

  std::int64_t count() const { return info_->buffers.front().shape.front(); }
  Use use(Access access) const { return {tensor_, access, elements_}; }
  execution::View operator()(const execution::View& elements) const {
    return elements_ == execution::Range{} ? elements : execution::View{elements.data, info_.get()};
  }

 private:
  RowRange(const execution::BufferInfo& all, const SomeRows& some) : tensor_(some.whole) {
    std::vector<std::int64_t> shape = all.shape;
    if (some.rows != execution::Range{}) {
      const std::int64_t row = all.elements() / shape.front();
      elements_ = {some.rows.begin * row, some.rows.end * row};
      shape.front() = some.rows.end - some.rows.begin;
    }
    info_ = std::make_shared<execution::TensorInfo>(
        execution::one_buffer("rows", all.dtype, std::move(shape), execution::Lifetime::scratch));
  }

  Tensor tensor_;
  execution::Range elements_;
  std::shared_ptr<const execution::TensorInfo> info_;
};

}  // namespace stowage::layers
