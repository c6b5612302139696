#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "drivers/bench_comm/definition.hpp"
#include "drivers/bench_comm/kind.hpp"
#include "execution/backend.hpp"

namespace stowage::drivers {

/// What the output of one collective holds by definition, on one rank of a group.
/// @param any_order of its sums: only rounding is forgiven
Definition definition(Kind kind, const Operands& operands, int rank, int ranks, bool any_order,
                      std::uint64_t seed);

/// Counts elements of collectives that came out wrong on this rank.
class Checker {
 public:
  explicit Checker(execution::Backend& backend);

  /// Elements of an output that are not what is defined: every one is looked at.
  std::int64_t count_wrong(execution::Queue& queue, const Definition& definition,
                           const void* output, std::int64_t count);

  /// Writes the output full of what nobody sends, then the input; enqueues the collective, and
  /// counts.
  std::int64_t check(execution::Queue& queue, const Definition& definition,
                     const Operands& operands, int rank,
                     const std::function<void(execution::Queue&)>& collective);

 private:
  std::unique_ptr<execution::Arena> lanes_, read_;
};

}  // namespace stowage::drivers
