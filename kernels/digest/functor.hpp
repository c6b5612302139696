#pragma once

#include <cstdint>

#include "execution/element_digest.hpp"
#include "execution/global_index.hpp"
#include "execution/parallel_for.hpp"
#include "kernels/elementwise/functors.hpp"

/// The sums of digest.hpp, written once for both backends.
namespace stowage::kernels::detail {

using execution::block_factor;
using execution::digest_key;
using execution::kDigestLanes;
using execution::lane_factor;

/// Neighbouring threads take neighbouring groups of eight elements on a GPU, so that their reads
/// lie together; on the host each thread has a run of groups of its own. Every thread adds its two
/// sums once, by integer atomics: in any order they give the same.
template <class Word>
struct AddDigest {
  const Word* data;
  std::int64_t count;
  execution::GlobalIndex index;  ///< of elements, of which each is `words` words
  std::int64_t words;
  std::uint64_t key[2];
  std::uint64_t* sums;
  std::int64_t threads;
  bool whole_groups;  ///< local groups of eight are whole blocks of the tensor, on 16 bytes

  STOWAGE_PORTABLE static void add(std::uint64_t* to, std::uint64_t value) {
#if defined(__CUDA_ARCH__)
    atomicAdd(reinterpret_cast<unsigned long long*>(to), value);
#else
    __atomic_fetch_add(to, value, __ATOMIC_RELAXED);
#endif
  }

  STOWAGE_PORTABLE void add_group(std::int64_t group, std::uint64_t* sum) const {
    const std::int64_t begin = group * kDigestLanes;
    if (whole_groups && begin + kDigestLanes <= count) {
      const auto& piece = Piece<Word, kDigestLanes>::at(data + begin);
      const std::int64_t block = (words * index.first + begin) / kDigestLanes;
      for (int half = 0; half < 2; ++half) {
        std::uint64_t lanes = 0;
        for (int lane = 0; lane < kDigestLanes; ++lane)
          lanes += (std::uint64_t{piece.values[lane]} + 1) * lane_factor(half, lane);
        sum[half] += lanes * block_factor(key[half], block);
      }
      return;
    }
    for (std::int64_t l = begin; l < begin + kDigestLanes && l < count; ++l) {
      const std::int64_t at = words * index(l / words) + l % words;
      for (int half = 0; half < 2; ++half)
        sum[half] += (std::uint64_t{data[l]} + 1) *
                     lane_factor(half, static_cast<int>(at % kDigestLanes)) *
                     block_factor(key[half], at / kDigestLanes);
    }
  }

  STOWAGE_PORTABLE void operator()(std::int64_t thread) const {
    const std::int64_t groups = (count + kDigestLanes - 1) / kDigestLanes;
    std::uint64_t sum[2] = {0, 0};
#if defined(__CUDA_ARCH__)
    for (std::int64_t group = thread; group < groups; group += threads) add_group(group, sum);
#else
    const std::int64_t each = (groups + threads - 1) / threads;
    for (std::int64_t group = thread * each; group < (thread + 1) * each && group < groups; ++group)
      add_group(group, sum);
#endif
    for (int half = 0; half < 2; ++half) add(sums + half, sum[half]);
  }
};

}  // namespace stowage::kernels::detail
