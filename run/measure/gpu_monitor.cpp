#include "run/measure/gpu_monitor.hpp"

#include <cmath>
#include <limits>
#include <utility>

namespace stowage::run {
namespace {

constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();

// Of NVML's enumerations.
constexpr int kClockSm = 1;
constexpr int kTemperatureGpu = 0;
constexpr int kErrorsUncorrected = 1;
constexpr int kSinceDriverLoaded = 0;

/// NVML's reasons for a clock below the highest, without idleness (1), the power limit (4) and
/// displays (0x100).
constexpr std::pair<unsigned long long, const char*> kClockEvents[] = {
    {0x2, "clock setting"},     {0x8, "hardware slowdown"},          {0x10, "sync boost"},
    {0x20, "thermal slowdown"}, {0x40, "hardware thermal slowdown"}, {0x80, "power brake"}};

}  // namespace

/// A property that NVML gives as an unsigned number, scaled.
template <class... Which>
double GpuMonitor::number(const char* name, double scale, Which... which) const {
  unsigned value = 0;
  if (gpu_ == nullptr || !nvml_.call(name, gpu_, which..., &value)) return kUnknown;
  return scale * value;
}

GpuMonitor::GpuMonitor(const std::string& uuid) : gpu_(nvml_.device(uuid)) {}

GpuState GpuMonitor::read() const {
  return {number("nvmlDeviceGetClockInfo", 1e6, kClockSm), number("nvmlDeviceGetPowerUsage", 1e-3),
          number("nvmlDeviceGetTemperature", 1, kTemperatureGpu)};
}

double GpuMonitor::energy_j() const {
  unsigned long long millijoule = 0;
  if (gpu_ == nullptr || !nvml_.call("nvmlDeviceGetTotalEnergyConsumption", gpu_, &millijoule))
    return kUnknown;
  return 1e-3 * static_cast<double>(millijoule);
}

double GpuMonitor::power_limit_w() const { return number("nvmlDeviceGetEnforcedPowerLimit", 1e-3); }

double GpuMonitor::default_power_limit_w() const {
  return number("nvmlDeviceGetPowerManagementDefaultLimit", 1e-3);
}

double GpuMonitor::highest_clock_hz() const {
  return number("nvmlDeviceGetMaxClockInfo", 1e6, kClockSm);
}

double GpuMonitor::clock_limit_hz() const {
  const double boost = number("nvmlDeviceGetMaxCustomerBoostClock", 1e6, kClockSm);
  const double set = number("nvmlDeviceGetApplicationsClock", 1e6, kClockSm);
  const double sold = number("nvmlDeviceGetDefaultApplicationsClock", 1e6, kClockSm);
  // Boards run faster than the applications clock that they are sold with: only another one holds.
  const bool changed = !std::isnan(sold) && set != sold;
  return std::fmin(boost, changed ? set : kUnknown);  // NaN only if both are
}

std::string GpuMonitor::clock_events() const {
  unsigned long long reasons = 0;
  if (gpu_ == nullptr || (!nvml_.call("nvmlDeviceGetCurrentClocksEventReasons", gpu_, &reasons) &&
                          // the name before driver 535
                          !nvml_.call("nvmlDeviceGetCurrentClocksThrottleReasons", gpu_, &reasons)))
    return {};
  std::string text;
  for (const auto& [bit, name] : kClockEvents)
    if (reasons & bit) text += std::string(text.empty() ? "" : ", ") + name;
  return text;
}

std::int64_t GpuMonitor::uncorrected_errors() const {
  unsigned long long errors = 0;
  if (gpu_ == nullptr || !nvml_.call("nvmlDeviceGetTotalEccErrors", gpu_, kErrorsUncorrected,
                                     kSinceDriverLoaded, &errors))
    return 0;
  return static_cast<std::int64_t>(errors);
}

std::string GpuMonitor::driver_version() const {
  char text[80] = {};
  const unsigned size = sizeof text;
  return nvml_.call("nvmlSystemGetDriverVersion", static_cast<char*>(text), size) ? text : "";
}

}  // namespace stowage::run
