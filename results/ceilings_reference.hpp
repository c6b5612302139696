#pragma once

#include <filesystem>
#include <string>
#include <string_view>

namespace stowage::results {

/// The measured limits that a set of kernels is judged by, and where they come from: stored in it
/// as /provenance/ceilings, so that a reader can tell whether its shares are of this machine.
struct CeilingsReference {
  std::string uuid;          ///< of the set of limits
  std::string created;       ///< ISO 8601, UTC
  std::string git_describe;  ///< of the build that measured them
  std::string digest;        ///< SHA-256 of what its /ceilings holds, see ceilings_digest()
  bool same_board = false;   ///< measured on the GPU of this run
  double flops_per_s = 0;    ///< largest rate of gemm_bf16
  double bytes_per_s = 0;    ///< largest rate of device_copy
};

/// Reads a result set of stowage_ceilings.
/// @param gpu_uuid of this run's GPU; a set without the identity of its GPU is of another board
/// @throws Error (exit 2) if the file is no such set, or its verdict is not VALID
CeilingsReference read_ceilings(const std::filesystem::path& path, std::string_view gpu_uuid);

/// SHA-256 of the limits of a result set: of each dataset of /ceilings in the order of names, its
/// name, a null byte and its values as little-endian fp64. It outlives publication.
std::string ceilings_digest(const std::filesystem::path& path);

}  // namespace stowage::results
