#include "execution/cuda/arena.hpp"

#include <cuda_runtime_api.h>

#include <cstdint>
#include <cstring>

#include "execution/cuda/numa.hpp"
#include "execution/cuda_check.hpp"
#include "execution/error.hpp"
#include "execution/host/arena.hpp"

namespace stowage::execution::cuda {
namespace {

constexpr std::size_t kPageBytes = 4096;

[[noreturn]] void throw_too_little(MemoryKind kind, std::size_t bytes, std::size_t available) {
  throw_environment("{} memory of {} bytes was asked for, {} bytes are available",
                    kind == MemoryKind::device ? "device" : "page-locked host", bytes, available);
}

std::size_t available(MemoryKind kind) {
  if (kind == MemoryKind::host) return host::available_bytes();
  std::size_t free = 0, total = 0;
  STOWAGE_CUDA(cudaMemGetInfo(&free, &total));
  return free;
}

/// The driver gives page-locked memory its pages at once.
cudaError_t allocate_near(void** allocation, std::size_t bytes) {
  const NearGpu near;
  return cudaHostAlloc(allocation, bytes, cudaHostAllocDefault);
}

}  // namespace

CudaArena::CudaArena(MemoryKind kind, std::size_t bytes) : kind_(kind), bytes_(bytes) {
  const std::size_t room = available(kind);
  const std::size_t padded = bytes + kPageBytes;  // the runtime aligns device memory to less
  if (padded > room) throw_too_little(kind, bytes, room);
  const cudaError_t code = kind == MemoryKind::device ? cudaMalloc(&allocation_, padded)
                                                      : allocate_near(&allocation_, padded);
  if (code == cudaErrorMemoryAllocation) {
    (void)cudaGetLastError();
    throw_too_little(kind, bytes, room);
  }
  STOWAGE_CUDA(code);
  const auto address = reinterpret_cast<std::uintptr_t>(allocation_);
  data_ = static_cast<std::byte*>(allocation_) + (kPageBytes - address % kPageBytes) % kPageBytes;
  if (kind == MemoryKind::host) {
    std::memset(data_, 0, bytes);
  } else {
    STOWAGE_CUDA(cudaMemset(data_, 0, bytes));
    STOWAGE_CUDA(cudaDeviceSynchronize());  // our streams do not wait for the default stream
  }
}

CudaArena::~CudaArena() {
  if (kind_ == MemoryKind::device)
    (void)cudaFree(allocation_);
  else
    (void)cudaFreeHost(allocation_);
}

}  // namespace stowage::execution::cuda
