#include "kernels/operands.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <span>
#include <string>

#include "execution/error.hpp"

namespace stowage::kernels {

using execution::Dtype;
using execution::View;

namespace {

std::string describe(Dtype dtype, std::span<const std::int64_t> shape) {
  return fmt::format("{} ({})", execution::name(dtype), fmt::join(shape, ", "));
}

std::string describe(const View& view) {
  return fmt::format("{} '{}'", describe(view.dtype(), view.buffer().shape), view.info->name);
}

bool is_floating(Dtype dtype) { return execution::epsilon(dtype) > 0; }

}  // namespace

Dtype Operands::storage(const View& view, std::string_view operand) const {
  STOWAGE_ASSERT(view, "{}: {} is absent", op_, operand);
  STOWAGE_ASSERT(is_floating(view.dtype()), "{}: {} is {}, it must be fp64, fp32 or bf16", op_,
                 operand, describe(view));
  return view.dtype();
}

bool Operands::is_bf16(Dtype storage) const {
  switch (storage) {
    case Dtype::bf16:
      return true;
    case Dtype::fp32:
      return false;
    case Dtype::fp64:
    case Dtype::int32:
    case Dtype::int64:
    case Dtype::uint8:
    case Dtype::e4m3:
    case Dtype::e5m2:
      break;
  }
  require(false, fmt::format("{} is computed on the host only", execution::name(storage)));
  return false;
}

void Operands::rank(const View& view, std::string_view operand, std::size_t rank) const {
  STOWAGE_ASSERT(view, "{}: {} is absent", op_, operand);
  STOWAGE_ASSERT(view.rank() == rank, "{}: {} is {}, it must have rank {}", op_, operand,
                 describe(view), rank);
}

void Operands::check(const View& view, std::string_view operand, Dtype dtype,
                     std::span<const std::int64_t> shape) const {
  STOWAGE_ASSERT(view, "{}: {} is absent", op_, operand);
  STOWAGE_ASSERT(view.dtype() == dtype && std::ranges::equal(view.buffer().shape, shape),
                 "{}: {} is {}, it must be {}", op_, operand, describe(view),
                 describe(dtype, shape));
}

void Operands::check(const View& view, std::string_view operand, Dtype dtype,
                     std::initializer_list<std::int64_t> shape) const {
  check(view, operand, dtype, std::span(shape.begin(), shape.size()));
}

void Operands::absent(const View& view, std::string_view operand) const {
  STOWAGE_ASSERT(!view, "{}: {} is {}, it must be absent", op_, operand, describe(view));
}

void Operands::check(const Columns& columns, std::string_view operand, Dtype dtype,
                     std::int64_t rows, std::int64_t count) const {
  rank(columns.view, operand, 2);
  STOWAGE_ASSERT(columns.count == count, "{}: {} has {} columns, it must have {}", op_, operand,
                 columns.count, count);
  STOWAGE_ASSERT(columns.view.dtype() == dtype && columns.rows() == rows && columns.first >= 0 &&
                     columns.first + count <= columns.width(),
                 "{}: {} is columns [{}, {}) of {}, it must be {} with {} rows and that width", op_,
                 operand, columns.first, columns.first + count, describe(columns.view),
                 execution::name(dtype), rows);
}

void Operands::workspace(const View& view, std::size_t bytes) const {
  if (bytes == 0 && !view) return;
  STOWAGE_ASSERT(view, "{}: workspace is absent, {} bytes are needed", op_, bytes);
  STOWAGE_ASSERT(view.buffer().bytes() >= bytes, "{}: workspace is {}, it must have {} bytes", op_,
                 describe(view), bytes);
}

void Operands::require(bool condition, std::string_view what) const {
  STOWAGE_ASSERT(condition, "{}: {}", op_, what);
}

}  // namespace stowage::kernels
