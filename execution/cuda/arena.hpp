#pragma once

#include <memory>

#include "execution/backend.hpp"
#include "execution/cuda/pinned.hpp"

namespace stowage::execution::cuda {

/// Bytes of device memory, or page-locked bytes of host memory: zeroed, one allocation.
class CudaArena final : public Arena {
 public:
  /// @throws Error (exit 3) with the bytes asked for and those available
  CudaArena(MemoryKind kind, std::size_t bytes);
  CudaArena(const CudaArena&) = delete;
  CudaArena& operator=(const CudaArena&) = delete;
  ~CudaArena() override;

  std::byte* data() const override { return data_; }
  std::size_t bytes() const override { return bytes_; }

 private:
  void allocate_on_device(std::size_t room);

  std::size_t bytes_;
  void* allocation_ = nullptr;            ///< on the device
  std::unique_ptr<PinnedMemory> pinned_;  ///< on the host
  std::byte* data_ = nullptr;             ///< the first 4 KiB border
};

}  // namespace stowage::execution::cuda
