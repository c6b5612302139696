#pragma once

#include <cstdint>

namespace stowage::kernels::test {

constexpr int kClusterBlocks = 2;
constexpr int kClusterRounds = 40;  ///< more than a phase's parity tells apart
constexpr int kBoxElements = 8 * 32;

/// What each block of a cluster had in shared memory, added up over rounds: boxes that the blocks
/// load in turn for both, and a word that block 0 writes into both.
struct ClusterSums {
  std::uint32_t boxes[kClusterBlocks][kBoxElements];
  std::uint32_t words[kClusterBlocks];
};

/// @param boxes round by round, of block 0 and block 1 in turn, on the host. Synchronises; returns
/// a CUDA error code.
int run_cluster(const std::uint32_t (&boxes)[kClusterRounds][kBoxElements], ClusterSums& sums);

}  // namespace stowage::kernels::test
