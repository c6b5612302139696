#pragma once

#include <cstdint>

/// The launches of permute.hpp's operators on device memory, behind the checks of permute.cpp.
/// `stream` is a cudaStream_t, the result a cudaError_t; S is float or Bf16.
namespace stowage::kernels::moe {

/// A block of permute_index holds one count for each expert and warp in shared memory.
inline constexpr int kMostPermutedExperts = 1024;
inline constexpr std::int64_t kMostPermutedPairs = 1LL << 30;

int launch_permute_index(std::int64_t tokens, std::int64_t topk, std::int64_t experts,
                         std::int64_t room, const std::int32_t* indices, std::int32_t* offsets,
                         std::int32_t* token_row, float* row_weight, const float* weights,
                         void* stream);

template <class S>
int launch_gather_rows(std::int64_t tokens, std::int64_t topk, std::int64_t width, const S* x,
                       const std::int32_t* token_row, S* xs, void* stream);

template <class S>
int launch_combine_rows(std::int64_t tokens, std::int64_t topk, std::int64_t width, const S* ys,
                        const std::int32_t* token_row, S* out, bool accumulate, void* stream);

}  // namespace stowage::kernels::moe
