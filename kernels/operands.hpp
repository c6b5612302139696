#pragma once

#include <cstdint>
#include <initializer_list>
#include <span>
#include <string_view>

#include "execution/dtype.hpp"
#include "execution/tensor.hpp"
#include "kernels/matrix.hpp"

namespace stowage::kernels {

/// Checks the operands of one operator. Every failure is a broken invariant (Error) that names the
/// operator, the operand, the tensor bound to it, what it is and what it should be.
class Operands {
 public:
  explicit Operands(std::string_view op) : op_(op) {}

  /// The dtype of `view`, which must be present and floating: the storage type of the operator.
  execution::Dtype storage(const execution::View& view, std::string_view operand) const;

  /// `view` is present and has this rank: before its extents are read.
  void rank(const execution::View& view, std::string_view operand, std::size_t rank) const;

  /// Which storage type device code works on: true for bf16, false for fp32; others have none.
  bool is_bf16(execution::Dtype storage) const;

  /// `view` is present and has exactly this dtype and shape.
  void check(const execution::View& view, std::string_view operand, execution::Dtype dtype,
             std::initializer_list<std::int64_t> shape) const;

  void check(const execution::View& view, std::string_view operand, execution::Dtype dtype,
             std::span<const std::int64_t> shape) const;

  /// `view` is absent.
  void absent(const execution::View& view, std::string_view operand) const;

  /// The columns exist in a tensor (rows, at least first + count) of this dtype.
  void check(const Columns& columns, std::string_view operand, execution::Dtype dtype,
             std::int64_t rows, std::int64_t count) const;

  /// `view` has at least `bytes`, of any dtype; it may be absent when 0 bytes are needed.
  void workspace(const execution::View& view, std::size_t bytes) const;

  /// Any other condition between operands; `what` completes "<op>: ".
  void require(bool condition, std::string_view what) const;

 private:
  std::string_view op_;
};

}  // namespace stowage::kernels
