#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "inputs/deck/section.hpp"

namespace stowage::forecast {

/// [machine]: what was measured of a machine; 0 or nothing: not known.
struct MachineConfig {
  std::string name;
  std::int64_t device_memory_bytes = 0;
  double peak_flops_per_s = 0, power_w = 0;  ///< of a device: the data sheet's
  double matmul_flops_per_s = 0, device_copy_bytes_per_s = 0;
  std::vector<std::string> op_efficiency;  ///< "mamba/scan 0.5"
  double d2h_bytes_per_s = 0, h2d_bytes_per_s = 0, duplex_bytes_per_s = 0;
  double allreduce_bytes_per_s = 0;
  std::vector<std::string> links, links_beside;  ///< "data 1.2e-5 3.4e11"
  std::int64_t ranks_per_node = 0;
  double network_latency_s = 0, network_bytes_per_s = 0;
  std::int64_t ranks_per_switch = 0;
  double spine_bytes_per_s = 0;
  double copy_latency_s = 0;
  double d2h_slowdown_arithmetic = 0, d2h_slowdown_memory = 0;
  double h2d_slowdown_arithmetic = 0, h2d_slowdown_memory = 0;
};

}  // namespace stowage::forecast

namespace stowage::inputs {

template <>
std::vector<Row<forecast::MachineConfig>> rows<forecast::MachineConfig>();

}  // namespace stowage::inputs
