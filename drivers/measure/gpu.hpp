#pragma once

#include <cstddef>
#include <memory>

#include "drivers/measure/gpu_monitor.hpp"
#include "execution/backend.hpp"
#include "execution/cuda_backend.hpp"
#include "results/provenance.hpp"

namespace stowage::drivers {

/// Fills in a rank's GPU.
void describe(const execution::CudaDevice& device, const GpuMonitor& monitor,
              results::RankInfo& info);

/// The GPU that a benchmark runs on, with its compute queue.
class Gpu {
 public:
  /// @throws Error (exit 3) if there is none
  explicit Gpu(int index);

  execution::Backend& backend() { return *backend_; }
  execution::Queue& queue() { return *queue_; }
  const execution::CudaDevice& device() const { return device_; }
  const GpuMonitor& monitor() const { return monitor_; }

  /// Device memory; freed with the arena.
  std::unique_ptr<execution::Arena> device_memory(std::size_t bytes);
  std::unique_ptr<execution::Arena> host_memory(std::size_t bytes);

  /// This process, its host and the GPU, for the result set.
  results::RankInfo rank_info() const;

 private:
  execution::CudaDevice device_;
  GpuMonitor monitor_;
  std::unique_ptr<execution::Backend> backend_;
  std::unique_ptr<execution::Queue> queue_;
};

}  // namespace stowage::drivers
