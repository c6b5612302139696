#pragma once

#include "execution/backend.hpp"

namespace stowage::execution::host {

/// Pages of anonymous memory: zeroed, aligned to 4 KiB, one allocation.
class HostArena final : public Arena {
 public:
  /// @throws Error (exit 3) with the bytes asked for and those available
  HostArena(MemoryKind kind, std::size_t bytes);
  HostArena(const HostArena&) = delete;
  HostArena& operator=(const HostArena&) = delete;
  ~HostArena() override;

  std::byte* data() const override { return data_; }
  std::size_t bytes() const override { return bytes_; }

 private:
  std::size_t bytes_;
  std::size_t mapped_bytes_;  ///< whole pages, at least one
  std::byte* data_;
};

/// Memory that this process can still get: what the machine has free, within the control group.
std::size_t available_bytes();

}  // namespace stowage::execution::host
