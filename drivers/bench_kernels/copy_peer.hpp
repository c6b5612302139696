#pragma once

#include <cstdint>

#include "drivers/bench_kernels/operand.hpp"
#include "execution/op.hpp"
#include "run/measure/gpu.hpp"

namespace stowage::drivers::bench {

/// The yardstick of operators that memory binds: the plain copy kernel, which reads one half of an
/// operator's bytes and writes the other, as random data. It shares with a small operator what the
/// ceiling of a large copy does not know: the start and the end of a kernel.
class CopyPeer {
 public:
  static constexpr const char* kName = "copy";

  /// True if memory binds on any GPU: far below the flops a byte of every one.
  static bool binds(const execution::Cost& cost);

  /// @param bytes of an operator, read and written; beyond 2 GiB it passes over the same memory
  ///        again, which no cache holds
  CopyPeer(run::Gpu& gpu, double bytes, std::int64_t seed);

  void enqueue(execution::Queue& queue) const;

 private:
  std::int64_t blocks_;  ///< of 16 bytes, copied
  std::int64_t window_;  ///< of them, in memory: a power of two, or all
  Operand from_, to_;
};

}  // namespace stowage::drivers::bench
