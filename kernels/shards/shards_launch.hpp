#pragma once

#include <cstdint>

namespace stowage::kernels::shards {

/// Device code takes up to this many experts.
inline constexpr std::int64_t kMostExperts = 1024;

/// On a cudaStream_t; returns the cudaError_t.
int launch_expert_offsets(std::int64_t pairs, std::int64_t experts, const std::int32_t* indices,
                          std::int32_t* offsets, void* stream);

}  // namespace stowage::kernels::shards
