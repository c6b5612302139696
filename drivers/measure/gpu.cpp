#include "drivers/measure/gpu.hpp"

#include <fmt/core.h>

#include <cmath>

namespace stowage::drivers {

using execution::MemoryKind;

Gpu::Gpu(int index)
    : device_(execution::open_cuda_device(index)),
      monitor_(device_.uuid),
      backend_(execution::make_cuda_backend({index})),
      queue_(backend_->make_queue(execution::Lane::compute, "compute")) {}

std::unique_ptr<execution::Arena> Gpu::device_memory(std::size_t bytes) {
  return backend_->allocate(MemoryKind::device, bytes);
}

std::unique_ptr<execution::Arena> Gpu::host_memory(std::size_t bytes) {
  return backend_->allocate(MemoryKind::host, bytes);
}

results::RankInfo Gpu::rank_info() const {
  results::RankInfo info = results::this_rank(0, 1);
  describe(device_, monitor_, info);
  return info;
}

void describe(const execution::CudaDevice& device, const GpuMonitor& monitor,
              results::RankInfo& info) {
  info.gpu_name = device.name;
  info.gpu_uuid = device.uuid;
  info.gpu_pci = device.pci;
  info.gpu_driver = fmt::format("{} (CUDA {}.{})", monitor.driver_version(), device.driver / 1000,
                                device.driver % 1000 / 10);
  info.gpu_mode = device.ecc ? "ecc on" : "ecc off";
  info.gpu_memory_bytes = static_cast<std::int64_t>(device.memory_bytes);
  info.gpu_clock_hz = monitor.highest_clock_hz();
  info.gpu_power_limit_w = monitor.power_limit_w();
  info.gpu_numa_node = results::numa_node_of(device.pci);
  const double sold_w = monitor.default_power_limit_w();
  info.gpu_default_limit_w = std::isnan(sold_w) ? 0 : sold_w;
}

}  // namespace stowage::drivers
