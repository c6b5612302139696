#pragma once

#include <cstdint>
#include <vector>

#include "execution/program.hpp"

namespace stowage::execution {

/// Which value of each tensor the ops of a program read and write, if they run in program order: a
/// tensor's value is told by how often it was written. A plan may issue steps in another order,
/// move bytes, and compute them again; what every op sees must be the same.
class Versions {
 public:
  /// Sections that repeat are followed for two periods, as in for_each_issued(plan, 2, …).
  explicit Versions(const Program& program);

  /// Writes of the tensor of a use before op, counted from the start of one execution.
  std::int64_t read(int op, std::size_t use, int repetition) const;
  /// The same after op. An op that only reruns brings back the value that was there already.
  std::int64_t written(int op, std::size_t use, int repetition) const;
  /// Writes of a tensor in one execution.
  std::int64_t writes(Tensor tensor) const { return writes_[static_cast<std::size_t>(tensor.id)]; }

 private:
  struct Value {
    std::int64_t read;
    std::int64_t written;
  };
  const Value& value(int op, std::size_t use, int repetition) const;

  std::vector<std::vector<Value>> values_;  ///< by op: its uses, period by period
  std::vector<std::size_t> uses_;           ///< by op: how many
  std::vector<std::int64_t> writes_;        ///< by tensor
};

}  // namespace stowage::execution
