#pragma once

#include "execution/backend.hpp"

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
  MemoryKind kind_;
  std::size_t bytes_;
  void* allocation_ = nullptr;
  std::byte* data_ = nullptr;  ///< the first 4 KiB border in it
};

}  // namespace stowage::execution::cuda
