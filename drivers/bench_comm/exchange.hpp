#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "drivers/measure/gpu.hpp"
#include "parallel/nccl.hpp"

namespace stowage::drivers {

/// Memory of one rank for exchanges of up to `bytes`.
struct ExchangeBuffers {
  std::unique_ptr<execution::Arena> from, to;
};

/// One kind of exchange between all ranks, of any size.
struct Exchange {
  std::string name;                             ///< "all_reduce"
  std::function<double(int ranks)> bus_factor;  ///< bus bandwidth = this * bytes / time
  /// Enqueues one; all ranks call it. @param bytes of this rank's part
  std::function<void(execution::Queue& queue, ExchangeBuffers& buffers, std::size_t bytes)> enqueue;
  /// Elements of a small exchange that came out wrong on this rank.
  std::function<double(Gpu& gpu, ExchangeBuffers& buffers)> errors;
};

/// Collective over `world`. What is returned keeps the communicators.
std::vector<Exchange> all_exchanges(const parallel::Communicator& world, Gpu& gpu,
                                    const parallel::NcclOptions& options);

}  // namespace stowage::drivers
