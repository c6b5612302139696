#pragma once

#include <sys/types.h>

#include <cstddef>
#include <span>
#include <string>

#include "inputs/data/file_form.hpp"

namespace stowage::drivers {

/// What a compressed file holds, by the program that a shell would take: gzip, zstd, xz, bzip2 or
/// lz4.
class Unpacker {
 public:
  /// Whether files of a form are read so.
  static bool knows(const inputs::FileForm& form);

  /// @param form one that is known
  /// @throws Error (exit 3) if the program is not there, a usage error if the file cannot be read
  Unpacker(const std::string& path, const inputs::FileForm& form);
  Unpacker(const Unpacker&) = delete;
  Unpacker& operator=(const Unpacker&) = delete;
  ~Unpacker();

  const inputs::FileForm& form() const { return form_; }
  /// The next bytes; 0 at the end of a file that was whole.
  /// @throws a usage error that names the file, with what the program said, if it was not
  std::size_t read(std::span<char> to);

 private:
  void require_whole();

  std::string path_, program_;
  inputs::FileForm form_;
  int out_ = -1, said_ = -1;  ///< pipes of what it writes and says
  pid_t child_ = -1;
};

}  // namespace stowage::drivers
