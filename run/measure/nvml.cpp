#include "run/measure/nvml.hpp"

namespace stowage::run {

Nvml::Nvml() : library_(execution::LoadedLibrary::if_found("libnvidia-ml.so.1")) {
  auto* start = library_.function<int()>("nvmlInit_v2");
  ready_ = start != nullptr && start() == 0;
}

Nvml::~Nvml() { (void)call("nvmlShutdown"); }

Nvml::Device Nvml::device(const std::string& uuid) const {
  Device found = nullptr;
  return call("nvmlDeviceGetHandleByUUID", uuid.c_str(), &found) ? found : nullptr;
}

}  // namespace stowage::run
