#pragma once

namespace stowage::execution {

/// A shared library that is loaded when it is first needed, not when the program starts. The loader
/// looks for it as for those that the program links: in LD_LIBRARY_PATH, the program's RUNPATH and
/// the system's folders. It stays loaded until the process ends, so its functions may be kept.
class LoadedLibrary {
 public:
  /// A library that may be missing: no function is found in it then.
  static LoadedLibrary if_found(const char* name);

  /// @param name as the loader knows it: "libcublasLt.so.13"
  /// @throws Error (exit code 3) with the name and the loader's reason if it cannot be loaded
  static LoadedLibrary required(const char* name);

  /// The function of a name, whose type the caller knows; nullptr if there is none.
  template <class Function>
  Function* function(const char* name) const {
    return reinterpret_cast<Function*>(address(name));
  }

 private:
  explicit LoadedLibrary(void* image) : image_(image) {}
  void* address(const char* name) const;

  void* image_;
};

}  // namespace stowage::execution
