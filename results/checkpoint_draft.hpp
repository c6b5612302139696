#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <vector>

#include "results/checkpoint.hpp"
#include "results/part_file.hpp"
#include "results/seal.hpp"
#include "results/tensor_digest.hpp"

namespace stowage::results {

/// A checkpoint under construction. It is made with all its records and room for its tensors, whose
/// bytes are then written in place (TensorBytes), by as many processes as like. The seal makes it a
/// checkpoint; without one it is removed.
class CheckpointDraft {
 public:
  /// Makes `path.part`. Throws Error(Exit::usage) as PartFile does.
  CheckpointDraft(std::filesystem::path path, const CheckpointState& state,
                  std::span<const TensorSpec> tensors);

  const std::filesystem::path& part() const { return part_.part(); }
  /// Where in the file each tensor begins.
  std::vector<std::int64_t> offsets() const;

  /// Takes the room on the disk for all of it, which may take seconds: a full one is an error
  /// before anything is written. File systems that cannot do that find out later. Any thread may
  /// call it. Throws Error(Exit::runtime).
  void take_room() const;

  /// Seals, syncs and renames; needs no HDF5, so that any thread may do it.
  /// @param digests of the tensors, in their order
  /// @return bytes of the file
  std::int64_t commit(std::span<const TensorDigest> digests);

 private:
  PartFile part_;
  std::vector<SealedTensor> tensors_;
  std::int64_t head_bytes_;
};

/// The bytes of tensors in a file that another may have made.
class TensorBytes {
 public:
  /// Throws Error(Exit::runtime), naming the file and the reason.
  explicit TensorBytes(std::filesystem::path path);
  TensorBytes(const TensorBytes&) = delete;
  TensorBytes& operator=(const TensorBytes&) = delete;
  ~TensorBytes();

  void write(std::int64_t offset, std::span<const std::byte> bytes) const;
  /// Returns when all is on the disk.
  void sync() const;

 private:
  std::filesystem::path path_;
  int descriptor_;
};

/// Writes all tensors of a draft, one after the other. @return their digests
std::vector<TensorDigest> write_tensors(const CheckpointDraft& draft,
                                        std::span<const TensorSource> tensors);

}  // namespace stowage::results
