#pragma once

#include <cstddef>
#include <cstdint>

namespace stowage::kernels {

/// The parts of a workspace, one behind the other. Without a workspace their bytes are counted, and
/// no address is set.
class WorkspaceParts {
 public:
  /// @param align bytes that each part's place is a multiple of
  explicit WorkspaceParts(void* workspace, std::size_t align = 16)
      : workspace_(static_cast<std::byte*>(workspace)), align_(align) {}

  template <class T>
  void take(T*& part, std::int64_t elements) {
    if (workspace_ != nullptr) part = reinterpret_cast<T*>(workspace_ + bytes_);
    const std::size_t size = static_cast<std::size_t>(elements) * sizeof(T);
    bytes_ += (size + align_ - 1) / align_ * align_;
  }
  /// Of all parts so far.
  std::size_t bytes() const { return bytes_; }

 private:
  std::byte* workspace_;
  std::size_t align_, bytes_ = 0;
};

}  // namespace stowage::kernels
