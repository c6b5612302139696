#pragma once

#include <cstdint>

namespace stowage::kernels::test {

constexpr int kChainBlocks = 600;
constexpr int kChainWords = 32;

/// Lets kChainBlocks blocks, in the order in which they drew tickets, each replace word i of an
/// array by 3 times itself plus ticket plus i, and add the ticket to a second array by a bulk
/// reduction; every block waits for its turn. `chained` and `sums` get the arrays. Synchronises;
/// returns a CUDA error code.
int run_chain(std::uint32_t (&chained)[kChainWords], float (&sums)[kChainWords]);

}  // namespace stowage::kernels::test
