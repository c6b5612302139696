#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

/// The seal of a checkpoint: lines of text in front of the HDF5 data (its user block, which every
/// reader of HDF5 skips), with a digest of every byte of the file (XXH64; of tensors that of
/// tensor_digest.hpp, which their writers make together):
///
///     stowage-checkpoint 3.0
///     seal <digest of all other bytes of the user block>
///     head <bytes of the user block>
///     file <bytes of the file>
///     structure <digest of all that follows but the tensors' bytes>
///     tensor <digest> <offset> <bytes> <name>
///     …
///     end
///
/// So a damaged file is refused before the HDF5 library parses it, and a damaged tensor is named.
namespace stowage::results {

inline constexpr std::string_view kCheckpointFormat = "3.0";

/// The bytes [offset, offset + bytes) of the file, which hold one tensor.
struct SealedTensor {
  std::string name;
  std::int64_t offset = 0;
  std::int64_t bytes = 0;
  std::string digest;
};

struct Seal {
  std::int64_t head_bytes = 0;
  std::vector<SealedTensor> tensors;  ///< rising by offset
  std::string digest = {};            ///< that of the line `seal`, as it was read
};

/// Bytes of a user block with room for the seal of tensors of these names: a power of two.
std::int64_t head_bytes_for(const std::vector<std::string>& names);

/// Seals a file that is complete but for its user block: reads all but the tensors, and writes.
/// Throws Error(Exit::runtime) if that fails.
void write_seal(const std::filesystem::path& path, Seal seal);

/// Reads the seal and checks the file against it: version, length, and every byte but those of the
/// tensors, which are checked as they are read. Throws Error(Exit::usage) that says what is wrong.
Seal read_seal(const std::filesystem::path& path);

}  // namespace stowage::results
