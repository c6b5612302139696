#include "inputs/huggingface/safetensors_file.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "execution/error.hpp"

namespace stowage::inputs::huggingface {

using execution::throw_usage;

namespace {

[[noreturn]] void throw_system(const char* call, const std::string& path) {
  throw execution::Error(execution::Exit::runtime,
                         fmt::format("{} of {} failed: {}", call, path, std::strerror(errno)));
}

Header read_header(const Descriptor& file) {
  const std::int64_t size = file.size();
  std::vector<std::byte> start(static_cast<std::size_t>(std::min<std::int64_t>(size, 8)));
  file.read(0, start);
  start.resize(8 + header_bytes(start, size, file.path()));
  file.read(0, start);
  return parse_header(start, size, file.path());
}

}  // namespace

Descriptor::Descriptor(std::string path, Mode mode) : path_(std::move(path)) {
  // Without O_NONBLOCK, a FIFO would wait for its writer.
  const int flags = mode == Mode::read ? O_RDONLY | O_NONBLOCK : O_WRONLY | O_CREAT | O_TRUNC;
  descriptor_ = ::open(path_.c_str(), flags | O_CLOEXEC, 0666);
  if (descriptor_ < 0)
    throw_usage("{} cannot be {}: {}", path_, mode == Mode::read ? "read" : "written",
                std::strerror(errno));
  struct stat facts = {};
  if (::fstat(descriptor_, &facts) == 0 && S_ISREG(facts.st_mode)) return;
  ::close(std::exchange(descriptor_, -1));
  throw_usage("{} is not a plain file", path_);
}

Descriptor::~Descriptor() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

std::int64_t Descriptor::size() const {
  struct stat facts = {};
  if (::fstat(descriptor_, &facts) != 0) throw_system("stat", path_);
  return facts.st_size;
}

void Descriptor::read(std::int64_t offset, std::span<std::byte> to) const {
  while (!to.empty()) {
    const ssize_t got = ::pread(descriptor_, to.data(), to.size(), offset);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) throw_system("read", path_);
    if (got == 0) throw_usage("{}: truncated: it ends at byte {}", path_, offset);
    to = to.subspan(static_cast<std::size_t>(got));
    offset += got;
  }
}

void Descriptor::write(std::int64_t offset, std::span<const std::byte> from) const {
  while (!from.empty()) {
    const ssize_t put = ::pwrite(descriptor_, from.data(), from.size(), offset);
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) throw_system("write", path_);
    from = from.subspan(static_cast<std::size_t>(put));
    offset += put;
  }
}

void Descriptor::sync() const {
  if (::fsync(descriptor_) != 0) throw_system("fsync", path_);
}

SafetensorsFile::SafetensorsFile(const std::string& path)
    : file_(path, Descriptor::Mode::read), header_(read_header(file_)) {}

void SafetensorsFile::read(const Entry& entry, std::int64_t offset, std::span<std::byte> to) const {
  STOWAGE_ASSERT(offset >= 0 && offset + std::ssize(to) <= entry.bytes(),
                 "bytes [{}, {}) of tensor {}, which has {}", offset, offset + std::ssize(to),
                 entry.name, entry.bytes());
  file_.read(header_.data_offset + entry.begin + offset, to);
}

SafetensorsWriter::SafetensorsWriter(const std::string& path, std::vector<Entry> entries,
                                     const std::map<std::string, std::string>& metadata)
    : entries_(std::move(entries)),
      start_(make_header(entries_, metadata)),
      file_(path, Descriptor::Mode::create) {
  file_.write(0, std::as_bytes(std::span(start_)));
  if (!entries_.empty()) missing_ = entries_.back().end;
}

void SafetensorsWriter::write(std::size_t entry, std::int64_t offset,
                              std::span<const std::byte> from) {
  const Entry& at = entries_[entry];
  STOWAGE_ASSERT(offset >= 0 && offset + std::ssize(from) <= at.bytes(),
                 "bytes [{}, {}) of tensor {}, which has {}", offset, offset + std::ssize(from),
                 at.name, at.bytes());
  file_.write(std::ssize(start_) + at.begin + offset, from);
  missing_ -= std::ssize(from);
}

void SafetensorsWriter::finish() {
  STOWAGE_ASSERT(missing_ == 0, "{}: {} bytes of tensors were not written", file_.path(), missing_);
  file_.sync();
}

}  // namespace stowage::inputs::huggingface
