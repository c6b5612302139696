#include "execution/host/arena.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <fstream>
#include <limits>
#include <string>

#include "execution/error.hpp"

namespace stowage::execution::host {
namespace {

constexpr std::size_t kPageBytes = 4096;
constexpr std::size_t kUnlimited = std::numeric_limits<std::size_t>::max();

/// The number in a one-line file, or `otherwise` if there is none ("max").
std::size_t read_number(const char* path, std::size_t otherwise) {
  std::ifstream file(path);
  std::size_t value = 0;
  return file >> value ? value : otherwise;
}

std::size_t free_bytes() {
  std::ifstream file("/proc/meminfo");
  std::string key;
  std::size_t kib = 0;
  for (std::string unit; file >> key >> kib; std::getline(file, unit)) {
    if (key == "MemAvailable:") return kib * 1024;
  }
  return kUnlimited;
}

std::size_t rest(std::size_t limit, std::size_t used) { return limit - std::min(limit, used); }

}  // namespace

std::size_t available_bytes() {
  const std::size_t unified = rest(read_number("/sys/fs/cgroup/memory.max", kUnlimited),
                                   read_number("/sys/fs/cgroup/memory.current", 0));
  const std::size_t legacy =
      rest(read_number("/sys/fs/cgroup/memory/memory.limit_in_bytes", kUnlimited),
           read_number("/sys/fs/cgroup/memory/memory.usage_in_bytes", 0));
  return std::min({free_bytes(), unified, legacy});
}

HostArena::HostArena(MemoryKind kind, std::size_t bytes)
    : bytes_(bytes),
      mapped_bytes_(std::max((bytes + kPageBytes - 1) / kPageBytes, std::size_t{1}) * kPageBytes) {
  // Checked first: the kernel promises more than it has, and ends the process when it is used.
  const std::size_t available = available_bytes();
  void* address = MAP_FAILED;
  if (bytes <= available) {
    address =
        ::mmap(nullptr, mapped_bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  }
  if (address == MAP_FAILED) {
    throw_environment("{} memory of {} bytes was asked for, {} bytes are available",
                      kind == MemoryKind::device ? "device (host backend)" : "host", bytes,
                      available);
  }
  data_ = static_cast<std::byte*>(address);
}

HostArena::~HostArena() { ::munmap(data_, mapped_bytes_); }

}  // namespace stowage::execution::host
