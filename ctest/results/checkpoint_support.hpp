#pragma once

#include <cstring>
#include <utility>

#include "results/checkpoint_draft.hpp"

/// Checkpoints of tensors that lie in host memory.
namespace stowage::results::test {

/// The bytes outlive the call that takes the source or target.
inline TensorSource from_memory(TensorSpec spec, const void* data) {
  return {std::move(spec), [data](std::size_t offset, std::span<std::byte> to) {
            std::memcpy(to.data(), static_cast<const std::byte*>(data) + offset, to.size());
          }};
}

inline TensorTarget to_memory(TensorSpec spec, void* data) {
  return {std::move(spec), [data](std::size_t offset, std::span<const std::byte> from) {
            std::memcpy(static_cast<std::byte*>(data) + offset, from.data(), from.size());
          }};
}

/// Writes a checkpoint by one process, outside of a directory of them. @return bytes of the file
inline std::int64_t save_checkpoint(const std::filesystem::path& path, const CheckpointState& state,
                                    std::span<const TensorSource> tensors) {
  CheckpointDraft draft(path, state, specs_of(tensors));
  return draft.commit(write_tensors(draft, tensors));
}

}  // namespace stowage::results::test
