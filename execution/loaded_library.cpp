#include "execution/loaded_library.hpp"

#include <dlfcn.h>

#include "execution/error.hpp"

namespace stowage::execution {

LoadedLibrary LoadedLibrary::if_found(const char* name) {
  return LoadedLibrary(dlopen(name, RTLD_NOW | RTLD_LOCAL));
}

LoadedLibrary LoadedLibrary::required(const char* name) {
  const LoadedLibrary library = if_found(name);
  if (library.image_ != nullptr) return library;
  const char* reason = dlerror();
  throw_environment("the library {} cannot be loaded: {}", name,
                    reason != nullptr ? reason : "the loader gives no reason");
}

void* LoadedLibrary::address(const char* name) const {
  return image_ == nullptr ? nullptr : dlsym(image_, name);
}

}  // namespace stowage::execution
