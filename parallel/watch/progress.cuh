#pragma once

#include <cstdint>

#include "parallel/watch/progress.hpp"

/// Progress words: one thread adds to counts in page-locked host memory. Only one stream writes
/// them, so the sum needs no atomic; volatile keeps both ways through the link, and the index is
/// written before the count that announces it.
namespace stowage::parallel {

__device__ inline void note_begin(volatile ProgressWords* words, std::uint64_t index) {
  words->index = index;
  __threadfence_system();
  words->begun = words->begun + 1;
}

__device__ inline void note_end(volatile ProgressWords* words) { words->ended = words->ended + 1; }

}  // namespace stowage::parallel
