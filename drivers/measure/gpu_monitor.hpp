#pragma once

#include <memory>
#include <string>

namespace stowage::drivers {

/// What a GPU is doing at one moment; NaN where the machine does not say.
struct GpuState {
  double clock_hz;  ///< of the multiprocessors
  double power_w;   ///< averaged by the board over some ten milliseconds
  double temperature_c;
};

/// Reads a GPU's clocks and power through NVML, which is loaded at run time: a machine without it
/// gives NaN. It changes no setting.
class GpuMonitor {
 public:
  /// @param uuid as nvidia-smi writes it
  explicit GpuMonitor(const std::string& uuid);
  ~GpuMonitor();

  GpuState read() const;
  /// Energy that the board has used since its driver was loaded.
  double energy_j() const;
  double power_limit_w() const;
  double default_power_limit_w() const;
  double highest_clock_hz() const;
  std::string driver_version() const;  ///< "580.95.05", or empty

 private:
  struct Library;
  std::unique_ptr<Library> library_;
};

}  // namespace stowage::drivers
