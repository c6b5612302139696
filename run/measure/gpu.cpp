#include "run/measure/gpu.hpp"

#include <fmt/core.h>

#include <cmath>

#include "results/links.hpp"
#include "run/measure/nvlinks.hpp"

namespace stowage::run {

namespace {

double or_zero(double value) { return std::isnan(value) ? 0 : value; }

}  // namespace

Gpu::Gpu(int index)
    : Processor(execution::make_cuda_backend({index})),
      device_(execution::open_cuda_device(index)),
      monitor_(device_.uuid) {}

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
  info.gpu_default_limit_w = or_zero(monitor.default_power_limit_w());
  info.gpu_clock_limit_hz = or_zero(monitor.clock_limit_hz());
  info.gpu_clock_events = monitor.clock_events();
  info.gpu_ecc_errors = monitor.uncorrected_errors();
  const NvLinks links = read_nvlinks(monitor.nvml(), monitor.device());
  info.gpu_nvlinks = links.up;
  info.gpu_nvlinks_down = links.down;
  info.gpu_nvlink_bytes_per_s = links.bytes_per_s;
  info.nics = results::to_text(results::nics_from(device.pci));
}

}  // namespace stowage::run
