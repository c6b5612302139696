#pragma once

#include <cstdint>
#include <string>

#include "run/measure/nvml.hpp"

namespace stowage::run {

/// What a GPU is doing at one moment; NaN where the machine does not say.
struct GpuState {
  double clock_hz;  ///< of the multiprocessors
  double power_w;   ///< averaged by the board over some ten milliseconds
  double temperature_c;
};

/// Reads a GPU's clocks, power and health through NVML; without it numbers are NaN. It changes no
/// setting.
class GpuMonitor {
 public:
  /// @param uuid as nvidia-smi writes it
  explicit GpuMonitor(const std::string& uuid);

  GpuState read() const;
  /// Energy that the board has used since its driver was loaded.
  double energy_j() const;
  double power_limit_w() const;
  double default_power_limit_w() const;
  double highest_clock_hz() const;
  /// What settings hold the clock to: applications clocks other than the board's own, or a limit on
  /// boosting. NaN: there are none, or NVML does not say.
  double clock_limit_hz() const;
  /// What holds the clock down now, other than that there is nothing to do or that the power limit
  /// is reached, as they should be: "hardware slowdown, power brake". Empty: nothing.
  std::string clock_events() const;
  /// Errors of memory that ECC could not correct since the driver was loaded; 0 also if NVML does
  /// not say.
  std::int64_t uncorrected_errors() const;
  std::string driver_version() const;  ///< "580.95.05", or empty

  const Nvml& nvml() const { return nvml_; }
  Nvml::Device device() const { return gpu_; }

 private:
  template <class... Which>
  double number(const char* name, double scale, Which... which) const;

  Nvml nvml_;
  Nvml::Device gpu_ = nullptr;
};

}  // namespace stowage::run
