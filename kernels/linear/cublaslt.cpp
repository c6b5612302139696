#include "kernels/linear/cublaslt.hpp"

#include "execution/error.hpp"
#include "execution/loaded_library.hpp"

#define STOWAGE_TEXT(value) #value
#define STOWAGE_TEXT_OF(macro) STOWAGE_TEXT(macro)

namespace stowage::kernels {
namespace {

// The soname: NVIDIA counts it up with the major version.
constexpr const char* kName = "libcublasLt.so." STOWAGE_TEXT_OF(CUBLAS_VER_MAJOR);

template <class Function>
void find(const execution::LoadedLibrary& library, const char* name, Function*& found) {
  found = library.function<Function>(name);
  if (found == nullptr) execution::throw_environment("the library {} has no {}", kName, name);
}

Cublaslt load() {
  const execution::LoadedLibrary library = execution::LoadedLibrary::required(kName);
  Cublaslt all;
#define STOWAGE_FIND_FUNCTION(name) find(library, "cublasLt" #name, all.name);
  STOWAGE_CUBLASLT(STOWAGE_FIND_FUNCTION)
#undef STOWAGE_FIND_FUNCTION
  return all;
}

}  // namespace

const Cublaslt& cublaslt() {
  static const Cublaslt all = load();
  return all;
}

}  // namespace stowage::kernels
