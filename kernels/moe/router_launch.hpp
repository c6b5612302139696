#pragma once

#include <cstdint>

#include "kernels/moe/router.hpp"

/// The launches of the router's kernels, behind the checks of router.cpp: the operators of
/// router.hpp on device memory in fp32. `stream` is a cudaStream_t, the result a cudaError_t.
namespace stowage::kernels::moe {

/// A warp holds the scores of one token in registers.
inline constexpr int kMostExperts = 1024;

int launch_router_select(std::int64_t tokens, const RouterOptions& options, const float* logits,
                         const float* bias, const std::int32_t* routed, std::int32_t* indices,
                         float* weights, void* stream);
int launch_router_weights(std::int64_t tokens, const RouterOptions& options, const float* logits,
                          const std::int32_t* indices, float* weights, void* stream);
int launch_router_backward(std::int64_t tokens, const RouterOptions& options,
                           const float* dweights_rows, const std::int32_t* token_row,
                           const float* logits, const std::int32_t* indices, const float* weights,
                           const std::int32_t* offsets, const std::int32_t* routed, float* dlogits,
                           void* stream);
int launch_router_losses(std::int64_t tokens, const RouterOptions& options, const float* logits,
                         const std::int32_t* offsets, const std::int32_t* routed, float* losses,
                         bool accumulate, void* stream);

}  // namespace stowage::kernels::moe
