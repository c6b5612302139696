#pragma once

#include <cstdint>

/// The launches of balance.hpp's operators on device memory in fp32. `stream` is a cudaStream_t,
/// the result a cudaError_t.
namespace stowage::kernels::moe {

int launch_expert_load(std::int64_t experts, const std::int32_t* offsets, float* load,
                       bool accumulate, void* stream);
int launch_expert_bias_update(std::int64_t experts, const float* load, float* bias, double rate,
                              const std::int32_t* step_ok, void* stream);

}  // namespace stowage::kernels::moe
