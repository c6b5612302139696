#pragma once

#include <span>
#include <string_view>

namespace stowage::version {

/// A library that Stowage was built against.
struct Library {
  std::string_view name;     // "HDF5"
  std::string_view version;  // "1.10.8"; empty where the library does not say
};

/// What this build is made of, as of when it was built: git is asked again in every build.
struct BuildInfo {
  std::string_view release;             // "0.1.0"
  std::string_view git_describe;        // "v0.1.0-12-g1a2b3c4-dirty"; "unknown" without git
  std::string_view compiler;            // "GNU 12.2.0"
  std::string_view cuda_compiler;       // "NVIDIA 13.0.88"; empty without CUDA
  std::string_view cuda_architectures;  // "90a-real"; empty without CUDA
  std::string_view build_type;          // "Release"
  std::string_view flags;               // of the host compiler, with -march and sanitizers
  std::span<const Library> libraries;
};

/// The facts of this build. Valid for the life of the program.
const BuildInfo& build_info();

}  // namespace stowage::version
