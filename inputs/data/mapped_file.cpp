#include "inputs/data/mapped_file.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <bit>
#include <cerrno>
#include <cstring>
#include <system_error>
#include <utility>

#include "execution/error.hpp"

namespace stowage::inputs {

using execution::throw_usage;

static_assert(std::endian::native == std::endian::little, "token files are little-endian");

MappedFile::MappedFile(std::string path) : path_(std::move(path)) {
  const auto fail = [this](int code) {
    throw_usage("data file '{}': {}", path_, std::generic_category().message(code));
  };
  const int file = ::open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);  // a FIFO would wait
  if (file < 0) fail(errno);
  struct stat status = {};
  const int failed = ::fstat(file, &status) != 0 ? errno : 0;
  const bool plain = failed == 0 && S_ISREG(status.st_mode);
  void* mapped = MAP_FAILED;
  int map_error = 0;
  if (plain && status.st_size > 0) {
    mapped =
        ::mmap(nullptr, static_cast<std::size_t>(status.st_size), PROT_READ, MAP_PRIVATE, file, 0);
    map_error = errno;
  }
  ::close(file);
  if (failed != 0) fail(failed);
  if (!plain) throw_usage("data file '{}': not a plain file", path_);
  if (status.st_size == 0) throw_usage("data file '{}': empty", path_);
  if (mapped == MAP_FAILED) fail(map_error);
  data_ = static_cast<const std::byte*>(mapped);
  size_ = status.st_size;
}

MappedFile::~MappedFile() {
  if (data_ == nullptr) return;
  ::munmap(const_cast<std::byte*>(data_), static_cast<std::size_t>(size_));
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : path_(std::move(other.path_)),
      data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)) {}

void MappedFile::require(std::int64_t bytes) const {
  if (size_ >= bytes) return;
  throw_usage("data file '{}': truncated: it has {} bytes, its header asks for {}", path_, size_,
              bytes);
}

void MappedFile::copy(std::int64_t offset, std::size_t bytes, void* to) const {
  std::memcpy(to, data_ + offset, bytes);
}

}  // namespace stowage::inputs
