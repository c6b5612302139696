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
  file_ = ::open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);  // a FIFO would wait
  if (file_ < 0) fail(errno);
  try {
    struct stat status = {};
    if (::fstat(file_, &status) != 0) fail(errno);
    if (!S_ISREG(status.st_mode)) throw_usage("data file '{}': not a plain file", path_);
    if (status.st_size == 0) throw_usage("data file '{}': empty", path_);
    void* mapped =
        ::mmap(nullptr, static_cast<std::size_t>(status.st_size), PROT_READ, MAP_PRIVATE, file_, 0);
    if (mapped == MAP_FAILED) fail(errno);
    data_ = static_cast<const std::byte*>(mapped);
    size_ = status.st_size;
  } catch (...) {
    ::close(file_);
    throw;
  }
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) ::munmap(const_cast<std::byte*>(data_), static_cast<std::size_t>(size_));
  if (file_ >= 0) ::close(file_);
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : path_(std::move(other.path_)),
      file_(std::exchange(other.file_, -1)),
      data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)) {}

void MappedFile::read_into(std::int64_t offset, std::span<std::byte> to) const {
  while (!to.empty()) {
    const ssize_t got = ::pread(file_, to.data(), to.size(), offset);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0)
      throw execution::Error(
          execution::Exit::runtime,
          fmt::format("data file '{}': cannot be read at byte offset {}: {}", path_, offset,
                      got < 0 ? std::generic_category().message(errno)
                              : fmt::format("it had {} bytes and has become shorter", size_)));
    offset += got;
    to = to.subspan(static_cast<std::size_t>(got));
  }
}

void MappedFile::require(std::int64_t bytes) const {
  if (size_ >= bytes) return;
  throw_usage("data file '{}': truncated: it has {} bytes, its header asks for {}", path_, size_,
              bytes);
}

void MappedFile::copy(std::int64_t offset, std::size_t bytes, void* to) const {
  std::memcpy(to, data_ + offset, bytes);
}

}  // namespace stowage::inputs
