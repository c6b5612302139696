#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "results/tensor_digest.hpp"

namespace stowage::results {

/// A file in which each process that writes tensors of one checkpoint says that it has ended, and
/// what it adds to the tensors' digests. So whoever seals learns it without a message.
class SumsFile {
 public:
  /// Makes or replaces the file, with nothing said by anyone.
  static void make(const std::filesystem::path& path, int ranks, std::size_t tensors);

  SumsFile(std::filesystem::path path, std::size_t tensors);

  /// All that `rank` has to write is on the disk.
  void done(int rank, std::span<const TensorDigest> digests) const;
  /// It will never be, and why.
  void failed(int rank, std::string_view why) const;
  /// What `rank` has said of each tensor; empty: nothing yet.
  /// @throws Error (exit 1) if it failed
  std::optional<std::vector<TensorDigest::Sums>> of(int rank) const;

 private:
  std::int64_t record_bytes() const;
  void write(int rank, std::uint64_t word, std::span<const std::byte> rest) const;

  std::filesystem::path path_;
  std::size_t tensors_;
};

}  // namespace stowage::results
