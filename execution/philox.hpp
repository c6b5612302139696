#pragma once

#include <cstdint>
#include <string_view>

#if defined(__CUDACC__)
#define STOWAGE_HOST_DEVICE_INLINE __host__ __device__ inline
#else
#define STOWAGE_HOST_DEVICE_INLINE inline
#endif

/// Random numbers without state: element `index` of stream `stream` under `seed`, in any order, on
/// any rank and on both backends. All arithmetic up to the last scaling is in integers, so the
/// values are the same everywhere, to the bit.

namespace stowage::execution {

/// Four 32-bit words: a counter, or the random block made from it.
struct PhiloxBlock {
  std::uint32_t word[4];
};

/// Philox4x32-10: J. Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC11, section 3.
STOWAGE_HOST_DEVICE_INLINE PhiloxBlock philox4x32(PhiloxBlock counter, std::uint32_t key0,
                                                  std::uint32_t key1) {
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t product0 = std::uint64_t{0xD2511F53U} * counter.word[0];
    const std::uint64_t product1 = std::uint64_t{0xCD9E8D57U} * counter.word[2];
    counter = {{static_cast<std::uint32_t>(product1 >> 32) ^ counter.word[1] ^ key0,
                static_cast<std::uint32_t>(product1),
                static_cast<std::uint32_t>(product0 >> 32) ^ counter.word[3] ^ key1,
                static_cast<std::uint32_t>(product0)}};
    key0 += 0x9E3779B9U;  // golden ratio
    key1 += 0xBB67AE85U;  // sqrt(3) - 1
  }
  return counter;
}

/// Block `index` of a stream: 128 random bits.
STOWAGE_HOST_DEVICE_INLINE PhiloxBlock philox(std::uint64_t seed, std::uint64_t stream,
                                              std::uint64_t index) {
  const PhiloxBlock counter = {
      {static_cast<std::uint32_t>(index), static_cast<std::uint32_t>(index >> 32),
       static_cast<std::uint32_t>(stream), static_cast<std::uint32_t>(stream >> 32)}};
  return philox4x32(counter, static_cast<std::uint32_t>(seed),
                    static_cast<std::uint32_t>(seed >> 32));
}

/// The stream of a name, such as a tensor's: its 64-bit FNV-1a hash.
constexpr std::uint64_t stream_of(std::string_view name) {
  std::uint64_t hash = 0xcbf29ce484222325ULL;
  for (const char c : name) {
    hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3ULL;
  }
  return hash;
}

/// A 64-bit random integer: the low half of block `index`.
STOWAGE_HOST_DEVICE_INLINE std::uint64_t random_bits(std::uint64_t seed, std::uint64_t stream,
                                                     std::uint64_t index) {
  const PhiloxBlock block = philox(seed, stream, index);
  return (std::uint64_t{block.word[1]} << 32) | block.word[0];
}

/// A double in [0, 1): 53 bits of block `index`.
STOWAGE_HOST_DEVICE_INLINE double uniform(std::uint64_t seed, std::uint64_t stream,
                                          std::uint64_t index) {
  return static_cast<double>(random_bits(seed, stream, index) >> 11) * 0x1p-53;
}

/// An integer in [0, bound), bound < 2^32: word scaled by multiplication (bias below bound / 2^32).
STOWAGE_HOST_DEVICE_INLINE std::uint32_t scale_to(std::uint32_t word, std::uint32_t bound) {
  return static_cast<std::uint32_t>((std::uint64_t{word} * bound) >> 32);
}

namespace detail {

/// Sum of the two 16-bit halves of a word.
STOWAGE_HOST_DEVICE_INLINE std::int32_t halves(std::uint32_t word) {
  return static_cast<std::int32_t>((word & 0xffffU) + (word >> 16));
}

}  // namespace detail

/// Standard deviation of normal_sum(): sqrt(2^32 - 1).
inline constexpr double kNormalSumDeviation = 65535.999992370605;

/// A centred sum of twelve 16-bit uniforms, nearly normal (Irwin-Hall): an exact integer with mean
/// 0, deviation kNormalSumDeviation and magnitude at most 393210; it converts to fp32 exactly.
///
/// Elements 2p and 2p + 1 share blocks 3p, 3p + 1 and 3p + 2 (24 halves); normal_pair() makes both.
STOWAGE_HOST_DEVICE_INLINE std::int32_t normal_sum(std::uint64_t seed, std::uint64_t stream,
                                                   std::uint64_t index) {
  const std::uint64_t first = 3 * (index / 2);
  const bool odd = (index & 1U) != 0;
  const PhiloxBlock whole = philox(seed, stream, odd ? first + 2 : first);
  const PhiloxBlock half = philox(seed, stream, first + 1);
  std::int32_t sum = -393210;  // 12 * 65535 / 2
  for (int i = 0; i < 4; ++i) sum += detail::halves(whole.word[i]);
  for (int i = 0; i < 2; ++i) sum += detail::halves(half.word[odd ? i + 2 : i]);
  return sum;
}

/// normal_sum() of elements 2 * pair and 2 * pair + 1, from three blocks instead of four.
STOWAGE_HOST_DEVICE_INLINE void normal_pair(std::uint64_t seed, std::uint64_t stream,
                                            std::uint64_t pair, std::int32_t& even,
                                            std::int32_t& odd) {
  const PhiloxBlock first = philox(seed, stream, 3 * pair);
  const PhiloxBlock shared = philox(seed, stream, 3 * pair + 1);
  const PhiloxBlock last = philox(seed, stream, 3 * pair + 2);
  even = odd = -393210;
  for (int i = 0; i < 4; ++i) even += detail::halves(first.word[i]);
  for (int i = 0; i < 4; ++i) odd += detail::halves(last.word[i]);
  for (int i = 0; i < 2; ++i) even += detail::halves(shared.word[i]);
  for (int i = 2; i < 4; ++i) odd += detail::halves(shared.word[i]);
}

/// The factor that turns normal_sum() into a value of the given standard deviation: the one fp32
/// rounding besides the product's.
inline float normal_scale(double deviation) {
  return static_cast<float>(deviation / kNormalSumDeviation);
}

/// A nearly normal value: one fp32 product of an exact integer, `scale` from normal_scale().
STOWAGE_HOST_DEVICE_INLINE float normal(std::uint64_t seed, std::uint64_t stream,
                                        std::uint64_t index, float scale) {
  return static_cast<float>(normal_sum(seed, stream, index)) * scale;
}

/// A value in [-limit, limit): one fp32 product of a 24-bit integer.
STOWAGE_HOST_DEVICE_INLINE float symmetric_uniform(std::uint64_t seed, std::uint64_t stream,
                                                   std::uint64_t index, float limit) {
  const auto bits = static_cast<std::int32_t>(philox(seed, stream, index).word[0] >> 8);
  return static_cast<float>(bits - (1 << 23)) * (limit * 0x1p-23F);
}

}  // namespace stowage::execution
