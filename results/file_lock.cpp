#include "results/file_lock.hpp"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <system_error>
#include <utility>

#include "execution/printable.hpp"

namespace stowage::results {

std::optional<LockedFile> LockedFile::try_open(const std::filesystem::path& path) {
  for (;;) {
    LockedFile file(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK,
                           S_IRUSR | S_IWUSR | S_IRGRP | S_IWGRP | S_IROTH | S_IWOTH));
    if (file.descriptor_ < 0) throw std::system_error(errno, std::generic_category());
    if (::flock(file.descriptor_, LOCK_EX | LOCK_NB) != 0) {
      if (errno == EWOULDBLOCK) return std::nullopt;
      execution::print_remark(
          fmt::format("# warning: {} cannot be locked ({}): nothing stops a second run here",
                      path.string(), std::strerror(errno)));
    }
    // Between open and lock its owner may have renamed or removed it: then this is another file.
    if (file.is_at(path)) return file;
  }
}

LockedFile::LockedFile(LockedFile&& other) noexcept
    : descriptor_(std::exchange(other.descriptor_, -1)) {}

LockedFile& LockedFile::operator=(LockedFile&& other) noexcept {
  std::swap(descriptor_, other.descriptor_);
  return *this;
}

LockedFile::~LockedFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

void LockedFile::write(std::string_view text) const {
  const auto bytes = static_cast<ssize_t>(text.size());
  if (::ftruncate(descriptor_, 0) != 0 ||
      ::pwrite(descriptor_, text.data(), text.size(), 0) != bytes || ::fsync(descriptor_) != 0)
    throw std::system_error(errno, std::generic_category());
}

bool LockedFile::is_at(const std::filesystem::path& path) const {
  struct stat held = {}, named = {};
  return ::fstat(descriptor_, &held) == 0 && ::lstat(path.c_str(), &named) == 0 &&
         held.st_dev == named.st_dev && held.st_ino == named.st_ino;
}

}  // namespace stowage::results
