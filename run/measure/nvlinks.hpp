#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "run/measure/nvml.hpp"

namespace stowage::run {

/// The NVLinks of a GPU, as NVML shows them; all 0 where it shows none.
struct NvLinks {
  std::int64_t up = 0;
  std::int64_t down = 0;
  std::int64_t to_switch = 0;              ///< of those that are up
  std::map<std::string, std::int64_t> to;  ///< the others that are up, by the PCI slot they lead to
  double bytes_per_s = 0;                  ///< of all that are up, each way; 0: not said
};

NvLinks read_nvlinks(const Nvml& nvml, Nvml::Device gpu);

/// The path between two GPUs of this host, in the words of `results/links.hpp`; empty if NVML does
/// not say.
/// @param links those of `gpu`
/// @param other_pci "0000:3b:00.0", the slot of `other`
std::string gpu_path(const Nvml& nvml, Nvml::Device gpu, const NvLinks& links, Nvml::Device other,
                     const std::string& other_pci);

}  // namespace stowage::run
