#include "execution/cuda/pinned.hpp"

#include <cuda_runtime_api.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <system_error>
#include <thread>
#include <vector>

#include "execution/cuda/numa.hpp"
#include "execution/cuda_check.hpp"

namespace stowage::execution::cuda {
namespace {

constexpr std::size_t kLargePage = std::size_t{2} << 20;
constexpr unsigned kMostThreads = 16;  ///< as many as a host's memory can feed

std::size_t align(std::size_t bytes) { return (bytes + kLargePage - 1) / kLargePage * kLargePage; }

/// Writes zeros, and so makes the pages, a share of whole large pages on every thread; here, where
/// no more threads can be had.
void zero(std::byte* data, std::size_t bytes) {
  const unsigned count = std::clamp(std::thread::hardware_concurrency(), 1U, kMostThreads);
  const std::size_t share = align(bytes / count + 1);
  std::vector<std::jthread> threads;
  for (std::size_t begin = 0; begin < bytes; begin += share) {
    const auto write = [=] { std::memset(data + begin, 0, std::min(share, bytes - begin)); };
    try {
      threads.emplace_back(write);
    } catch (const std::system_error&) {
      write();
    }
  }
}

}  // namespace

PinnedMemory::PinnedMemory(std::size_t bytes)
    : bytes_(align(std::max<std::size_t>(bytes, 1))),
      mapped_bytes_(bytes_ + kLargePage),
      mapping_(::mmap(nullptr, mapped_bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
                      -1, 0)) {
  if (mapping_ == MAP_FAILED) return;
  const auto address = reinterpret_cast<std::uintptr_t>(mapping_);
  std::byte* data = static_cast<std::byte*>(mapping_) + (kLargePage - address % kLargePage);
  (void)::madvise(data, bytes_, MADV_HUGEPAGE);  // a wish
  prefer_near_gpu(data, bytes_);
  zero(data, bytes_);
  const cudaError_t code = cudaHostRegister(data, bytes_, cudaHostRegisterPortable);
  if (code == cudaSuccess) {
    data_ = data;
    return;
  }
  release();
  if (code != cudaErrorMemoryAllocation) STOWAGE_CUDA(code);
  (void)cudaGetLastError();
}

PinnedMemory::~PinnedMemory() {
  if (data_ == nullptr) return;
  (void)cudaHostUnregister(data_);
  release();
}

void PinnedMemory::release() { (void)::munmap(mapping_, mapped_bytes_); }

}  // namespace stowage::execution::cuda
