#pragma once

#include <cstddef>
#include <memory>
#include <utility>

#include "execution/backend.hpp"

namespace stowage::run {

/// What operators run on: a backend with its compute queue.
class Processor {
 public:
  explicit Processor(std::unique_ptr<execution::Backend> backend)
      : backend_(std::move(backend)),
        queue_(backend_->make_queue(execution::Lane::compute, "compute")) {}

  execution::Backend& backend() { return *backend_; }
  execution::Queue& queue() { return *queue_; }

  /// Zeroed memory; freed with the arena.
  std::unique_ptr<execution::Arena> device_memory(std::size_t bytes) {
    return backend_->allocate(execution::MemoryKind::device, bytes);
  }
  std::unique_ptr<execution::Arena> host_memory(std::size_t bytes) {
    return backend_->allocate(execution::MemoryKind::host, bytes);
  }

 private:
  std::unique_ptr<execution::Backend> backend_;
  std::unique_ptr<execution::Queue> queue_;
};

}  // namespace stowage::run
