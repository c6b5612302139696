#pragma once

#include <cstdint>

#include "execution/dtype.hpp"
#include "execution/global_index.hpp"
#include "execution/parallel_for.hpp"
#include "kernels/elementwise/functors.hpp"
#include "kernels/optimizer/stochastic_rounding.hpp"

namespace stowage::kernels::detail {

/// Eight neighbours of a RoundSum, written once for both backends. Elements 8 b to 8 b + 7 of the
/// whole tensor share block b of random bits, 16 bits each.
template <class A>
struct RoundedSum {
  static constexpr int kElements = 8;

  const A* x;
  execution::Bf16* sum;
  const std::int64_t* step;
  const std::int32_t* microbatch;  ///< 1 + its number; null: that is `number`
  std::int64_t number, count;
  std::uint64_t seed, stream;
  execution::GlobalIndex index;
  bool accumulate;
  bool aligned;

  STOWAGE_PORTABLE void operator()(std::int64_t piece) const {
    constexpr std::uint64_t kOdd = 0x9E3779B97F4A7C15U;  // spreads numbers over streams
    const std::int64_t begin = piece * kElements;
    const auto which = static_cast<std::uint64_t>(microbatch != nullptr ? *microbatch - 1 : number);
    Block block{RoundingStream::key(seed, *step), stream + which * kOdd};
    if (aligned && begin + kElements <= count) {
      const auto more = Piece<A, kElements>::at(x + begin);
      Piece<execution::Bf16, kElements> result = {};
      if (accumulate) result = Piece<execution::Bf16, kElements>::at(sum + begin);
      for (int i = 0; i < kElements; ++i)
        result.values[i] = rounded(block.of(index(begin + i)), more.values[i], result.values[i]);
      Piece<execution::Bf16, kElements>::put(sum + begin, result);
    } else {
      for (std::int64_t i = begin; i < begin + kElements && i < count; ++i)
        sum[i] = rounded(block.of(index(i)), x[i], sum[i]);
    }
  }

 private:
  /// The random bits of eight elements.
  struct Block {
    std::uint64_t key, stream;
    std::int64_t number = -1;
    execution::PhiloxBlock bits = {};

    STOWAGE_PORTABLE std::uint32_t of(std::int64_t element) {
      if (element / 8 != number) {
        number = element / 8;
        bits = execution::philox(key, stream, static_cast<std::uint64_t>(number));
      }
      const auto at = static_cast<int>(element % 8);
      const std::uint32_t low = at / 2 % 2 == 0 ? bits.word[0] : bits.word[1];
      const std::uint32_t high = at / 2 % 2 == 0 ? bits.word[2] : bits.word[3];
      return (at < 4 ? low : high) >> 16 * (at % 2) & 0xffffU;
    }
  };

  STOWAGE_PORTABLE execution::Bf16 rounded(std::uint32_t random, A more,
                                           execution::Bf16 before) const {
    const A all = accumulate ? static_cast<A>(widened(before)) + more : more;
    execution::Bf16 result;
    result.bits = round_to_bf16(static_cast<float>(all), random);
    return result;
  }
  STOWAGE_PORTABLE static float widened(execution::Bf16 value) {
    return std::bit_cast<float>(static_cast<std::uint32_t>(value.bits) << 16);
  }
};

}  // namespace stowage::kernels::detail
