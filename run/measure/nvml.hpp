#pragma once

#include <string>

#include "execution/loaded_library.hpp"

namespace stowage::run {

/// NVML, loaded at run time: on a machine without it every call fails. Its interface is stable, and
/// its header belongs to no package that is needed otherwise, so the types of a function are those
/// of the arguments that it is called with. Nothing here changes a setting.
class Nvml {
 public:
  using Device = void*;

  Nvml();
  ~Nvml();
  Nvml(const Nvml&) = delete;
  Nvml& operator=(const Nvml&) = delete;

  /// Whether a function is there and says that it worked.
  template <class... Arguments>
  bool call(const char* name, Arguments... arguments) const {
    auto* function = library_.function<int(Arguments...)>(name);
    return ready_ && function != nullptr && function(arguments...) == 0;
  }

  /// The GPU of a name as nvidia-smi writes it ("GPU-9f31…"); nullptr if it shows none.
  Device device(const std::string& uuid) const;

 private:
  execution::LoadedLibrary library_;
  bool ready_ = false;
};

}  // namespace stowage::run
