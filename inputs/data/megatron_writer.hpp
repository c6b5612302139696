#pragma once

#include <cstdint>
#include <fstream>
#include <span>
#include <string>
#include <vector>

#include "inputs/data/token_file.hpp"

namespace stowage::inputs {

/// Writes documents as Megatron's indexed data set, one sequence a document, and a loss mask beside
/// it if asked for. The caller names the files, so that they may be moved into place when whole.
class MegatronWriter {
 public:
  /// @param mask_path empty: no mask
  /// Throws a usage error that names the file if one cannot be written.
  MegatronWriter(const std::string& bin_path, const std::string& index_path,
                 const std::string& mask_path, std::int64_t vocab_size);

  /// Appends a document of at least one token, each in [0, vocab_size). `mask`: as many bytes, 0 or
  /// 1; empty if no mask is written. Throws Error(Exit::runtime) if a file did not take its bytes.
  void add(std::span<const std::int32_t> tokens, std::span<const std::uint8_t> mask);
  /// Writes the index and closes all files. Throws Error(Exit::runtime) if a file did not take its
  /// bytes, a usage error if there is no document.
  void finish();

  std::int64_t documents() const { return static_cast<std::int64_t>(lengths_.size()); }
  std::int64_t tokens() const { return tokens_; }

 private:
  std::string bin_path_, index_path_, mask_path_;
  std::ofstream bin_, index_, mask_;
  detail::TokenWidth width_;
  std::int64_t vocab_size_;
  std::int64_t tokens_ = 0;
  std::vector<std::int32_t> lengths_;
  std::string bytes_;  // of one document
};

}  // namespace stowage::inputs
