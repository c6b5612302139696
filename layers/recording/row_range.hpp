#pragma once

#include <memory>

#include "execution/op.hpp"

namespace stowage::layers {

/// Some rows of a matrix, as a use of their elements and as the matrix that a kernel sees.
class RowRange {
 public:
  /// @param all rows that the matrix has  @param rows of them; the range that means all: all
  RowRange(execution::Dtype dtype, std::int64_t all, std::int64_t columns, execution::Range rows)
      : columns_(columns),
        whole_(rows == execution::Range{}),
        rows_(whole_ ? execution::Range{0, all} : rows),
        info_(std::make_shared<execution::TensorInfo>(execution::one_buffer(
            "rows", dtype, {count(), columns}, execution::Lifetime::scratch))) {}

  std::int64_t count() const { return rows_.end - rows_.begin; }
  execution::Use use(execution::Tensor tensor, execution::Access access) const {
    return elements(tensor, access, columns_);
  }
  /// The same rows of a vector.
  execution::Use use_of_vector(execution::Tensor tensor, execution::Access access) const {
    return elements(tensor, access, 1);
  }
  execution::View operator()(const execution::View& elements) const {
    return whole_ || !elements ? elements : execution::View{elements.data, info_.get()};
  }

 private:
  execution::Use elements(execution::Tensor tensor, execution::Access access,
                          std::int64_t each) const {
    if (whole_) return {tensor, access};
    return {tensor, access, {rows_.begin * each, rows_.end * each}};
  }

  std::int64_t columns_;
  bool whole_;
  execution::Range rows_;
  std::shared_ptr<const execution::TensorInfo> info_;
};

}  // namespace stowage::layers
