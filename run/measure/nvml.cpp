#include "run/measure/nvml.hpp"

#include <dlfcn.h>

namespace stowage::run {

Nvml::Nvml() : image_(dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL)) {
  auto* start = reinterpret_cast<int (*)()>(address("nvmlInit_v2"));
  ready_ = start != nullptr && start() == 0;
}

Nvml::~Nvml() {
  (void)call("nvmlShutdown");
  if (image_ != nullptr) dlclose(image_);
}

void* Nvml::address(const char* name) const {
  return image_ == nullptr ? nullptr : dlsym(image_, name);
}

Nvml::Device Nvml::device(const std::string& uuid) const {
  Device found = nullptr;
  return call("nvmlDeviceGetHandleByUUID", uuid.c_str(), &found) ? found : nullptr;
}

}  // namespace stowage::run
