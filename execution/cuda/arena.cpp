#include "execution/cuda/arena.hpp"

#include <cuda_runtime_api.h>

#include <cstdint>

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

}  // namespace

CudaArena::CudaArena(MemoryKind kind, std::size_t bytes) : bytes_(bytes) {
  const std::size_t room = available(kind);
  const std::size_t padded = bytes + kPageBytes;  // the runtime aligns device memory to less
  if (padded > room) throw_too_little(kind, bytes, room);
  if (kind == MemoryKind::device) {
    allocate_on_device(room);
    return;
  }
  pinned_ = std::make_unique<PinnedMemory>(bytes);
  data_ = pinned_->data();
  if (data_ == nullptr) throw_too_little(kind, bytes, room);
}

void CudaArena::allocate_on_device(std::size_t room) {
  const cudaError_t code = cudaMalloc(&allocation_, bytes_ + kPageBytes);
  if (code == cudaErrorMemoryAllocation) {
    (void)cudaGetLastError();
    throw_too_little(MemoryKind::device, bytes_, room);
  }
  STOWAGE_CUDA(code);
  const auto address = reinterpret_cast<std::uintptr_t>(allocation_);
  data_ = static_cast<std::byte*>(allocation_) + (kPageBytes - address % kPageBytes) % kPageBytes;
  STOWAGE_CUDA(cudaMemset(data_, 0, bytes_));
  STOWAGE_CUDA(cudaDeviceSynchronize());  // our streams do not wait for the default stream
}

CudaArena::~CudaArena() {
  if (allocation_ != nullptr) (void)cudaFree(allocation_);
}

}  // namespace stowage::execution::cuda
