#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "execution/dtype.hpp"
#include "run/measure/processor.hpp"

namespace stowage::drivers::bench {

/// Outputs are poisoned before a launch is checked, what is updated gets its first values again.
enum class Role : unsigned char { input, output, update, workspace };

/// A named array in the memory of a processor.
class Operand {
 public:
  Operand(run::Processor& processor, std::string name, Role role, execution::Dtype dtype,
          std::vector<std::int64_t> shape);

  const std::string& name() const { return name_; }
  Role role() const { return role_; }
  execution::Dtype dtype() const { return dtype_; }
  const std::vector<std::int64_t>& shape() const { return shape_; }
  std::int64_t elements() const { return elements_; }
  std::size_t bytes() const;
  void* data() const { return memory_->data(); }
  template <class T>
  T* as() const {
    return reinterpret_cast<T*>(memory_->data());
  }

  /// Nearly normal values, made where it lies; fp32, bf16 and 8 bits. The stream is the operand's
  /// name.
  void fill_normal(std::int64_t seed, double mean, double deviation);
  /// The same values once more.
  void refill();
  /// All elements become NaN, those of integers -1.
  void poison();
  void upload(const void* from);

  /// All bytes, on the host; waits for the queue.
  std::vector<std::byte> download() const;
  /// Rows [first, first + count) of the first dimension as doubles; floating dtypes.
  std::vector<double> rows(std::int64_t first, std::int64_t count) const;
  std::vector<double> values() const { return rows(0, shape_.front()); }
  /// Columns [first, first + count) of all rows of a matrix, dense.
  std::vector<double> columns(std::int64_t first, std::int64_t count) const;
  /// A block of a matrix, dense.
  std::vector<double> block(std::int64_t row, std::int64_t rows, std::int64_t column,
                            std::int64_t columns) const;

 private:
  void fill_normal_of_8_bits(std::int64_t seed, double mean, double deviation);

  run::Processor& processor_;
  std::string name_;
  Role role_;
  execution::Dtype dtype_;
  std::vector<std::int64_t> shape_;
  std::int64_t elements_;
  struct Fill {
    std::int64_t seed = 0;
    double mean = 0, deviation = 0;
  } fill_;
  std::unique_ptr<execution::Arena> memory_;
};

}  // namespace stowage::drivers::bench
