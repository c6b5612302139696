#pragma once

#include <cublasLt.h>

/// Every function of cuBLASLt that is called, without its prefix.
#define STOWAGE_CUBLASLT(Each)                                                               \
  Each(Create) Each(GetStatusString) Each(GetVersion) Each(Matmul) Each(MatmulAlgoCheck)     \
      Each(MatmulAlgoConfigGetAttribute) Each(MatmulAlgoGetHeuristic) Each(MatmulDescCreate) \
          Each(MatmulDescDestroy) Each(MatmulDescSetAttribute) Each(MatmulPreferenceCreate)  \
              Each(MatmulPreferenceDestroy) Each(MatmulPreferenceSetAttribute)               \
                  Each(MatrixLayoutCreate) Each(MatrixLayoutDestroy)                         \
                      Each(MatrixLayoutSetAttribute)

namespace stowage::kernels {

/// The functions of cuBLASLt, of the types that its header declares: `Create` is cublasLtCreate.
struct Cublaslt {
#define STOWAGE_DECLARE_FUNCTION(name) decltype(&::cublasLt##name) name = nullptr;
  STOWAGE_CUBLASLT(STOWAGE_DECLARE_FUNCTION)  // NOLINT(readability-identifier-naming): its names
#undef STOWAGE_DECLARE_FUNCTION
};

/// Loads the library at the first call; any thread may make it. Linked, its relocations would take
/// 70 to 100 ms of every start of a program, also where no product runs on a GPU.
/// @throws Error (exit code 3) if the library of the header's major version, or a function, is
///     missing
const Cublaslt& cublaslt();

}  // namespace stowage::kernels
