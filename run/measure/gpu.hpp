#pragma once

#include "execution/cuda_backend.hpp"
#include "results/provenance.hpp"
#include "run/measure/gpu_monitor.hpp"
#include "run/measure/processor.hpp"

namespace stowage::run {

/// Fills in a rank's GPU.
void describe(const execution::CudaDevice& device, const GpuMonitor& monitor,
              results::RankInfo& info);

/// The GPU that a benchmark runs on, with its compute queue.
class Gpu : public Processor {
 public:
  /// @throws Error (exit 3) if there is none
  explicit Gpu(int index);

  const execution::CudaDevice& device() const { return device_; }
  const GpuMonitor& monitor() const { return monitor_; }

  /// This process, its host and the GPU, for the result set.
  results::RankInfo rank_info() const;

 private:
  execution::CudaDevice device_;
  GpuMonitor monitor_;
};

}  // namespace stowage::run
