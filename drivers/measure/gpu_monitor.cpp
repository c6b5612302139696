#include "drivers/measure/gpu_monitor.hpp"

#include <dlfcn.h>

#include <limits>

namespace stowage::drivers {
namespace {

constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();

// From NVML's stable interface; its header belongs to no package that is needed otherwise.
using Code = int;
using Handle = void*;
constexpr int kClockSm = 1;
constexpr int kTemperatureGpu = 0;

}  // namespace

struct GpuMonitor::Library {
  void* image = nullptr;
  Handle gpu = nullptr;

  /// A function of the library, or nullptr.
  template <class Function>
  Function* find(const char* name) const {
    return image == nullptr ? nullptr : reinterpret_cast<Function*>(dlsym(image, name));
  }

  /// A property that NVML gives as an unsigned number, scaled.
  template <class... Which>
  double number(const char* name, double scale, Which... which) const {
    auto* get = find<Code(Handle, Which..., unsigned*)>(name);
    unsigned value = 0;
    if (gpu == nullptr || get == nullptr || get(gpu, which..., &value) != 0) return kUnknown;
    return scale * value;
  }
};

GpuMonitor::GpuMonitor(const std::string& uuid) : library_(std::make_unique<Library>()) {
  library_->image = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
  auto* start = library_->find<Code()>("nvmlInit_v2");
  auto* open = library_->find<Code(const char*, Handle*)>("nvmlDeviceGetHandleByUUID");
  if (start == nullptr || open == nullptr || start() != 0) return;
  if (open(uuid.c_str(), &library_->gpu) != 0) library_->gpu = nullptr;
}

GpuMonitor::~GpuMonitor() {
  if (auto* stop = library_->find<Code()>("nvmlShutdown")) (void)stop();
  if (library_->image != nullptr) dlclose(library_->image);
}

GpuState GpuMonitor::read() const {
  return {library_->number("nvmlDeviceGetClockInfo", 1e6, kClockSm),
          library_->number("nvmlDeviceGetPowerUsage", 1e-3),
          library_->number("nvmlDeviceGetTemperature", 1, kTemperatureGpu)};
}

double GpuMonitor::energy_j() const {
  auto* get =
      library_->find<Code(Handle, unsigned long long*)>("nvmlDeviceGetTotalEnergyConsumption");
  unsigned long long millijoule = 0;
  if (library_->gpu == nullptr || get == nullptr || get(library_->gpu, &millijoule) != 0)
    return kUnknown;
  return 1e-3 * static_cast<double>(millijoule);
}

double GpuMonitor::power_limit_w() const {
  return library_->number("nvmlDeviceGetEnforcedPowerLimit", 1e-3);
}

double GpuMonitor::default_power_limit_w() const {
  return library_->number("nvmlDeviceGetPowerManagementDefaultLimit", 1e-3);
}

double GpuMonitor::highest_clock_hz() const {
  return library_->number("nvmlDeviceGetMaxClockInfo", 1e6, kClockSm);
}

std::string GpuMonitor::driver_version() const {
  char text[80] = {};
  auto* get = library_->find<Code(char*, unsigned)>("nvmlSystemGetDriverVersion");
  return get != nullptr && get(text, sizeof text) == 0 ? text : "";
}

}  // namespace stowage::drivers
