#include "results/line_file.hpp"

#include <cerrno>
#include <cstring>
#include <system_error>

#include "execution/error.hpp"
#include "execution/printable.hpp"
#include "results/output_path.hpp"

namespace stowage::results {

LineFile::LineFile(const std::filesystem::path& path, FileKind kind, bool append) : path_(path) {
  require_free(path, kind);
  const auto refuse = [&](std::string_view why) {
    execution::throw_usage("{} cannot be written to {}: {}", name(kind), path.string(), why);
  };
  std::error_code ignored;
  if (path.has_parent_path()) std::filesystem::create_directories(path.parent_path(), ignored);
  try {
    lock_ = LockedFile::try_open(path);
    if (lock_ && !append && !keep_older(path).empty()) lock_ = LockedFile::try_open(path);
  } catch (const std::system_error& error) {
    refuse(error.code().message());
  }
  if (!lock_) refuse("another run is writing it");
  file_.reset(std::fopen(path.c_str(), "ae"));
  if (!file_) refuse(std::strerror(errno));
}

bool LineFile::empty() const {
  std::error_code none;
  return std::filesystem::file_size(path_, none) == 0;
}

void LineFile::write(std::string line) {
  if (!file_) return;
  line += '\n';
  const bool written = std::fwrite(line.data(), 1, line.size(), file_.get()) == line.size() &&
                       std::fflush(file_.get()) == 0;
  if (written || warned_) return;
  warned_ = true;
  execution::print_remark(fmt::format("# warning: {} cannot be written any more: {}",
                                      path_.string(), std::strerror(errno)));
}

}  // namespace stowage::results
