#include <algorithm>
#include <cmath>
#include <vector>

#include "execution/host_loops.hpp"
#include "kernels/rope/rope.hpp"

namespace stowage::kernels {

using execution::Accumulation;
using execution::Bf16;

namespace {

// Of the pairs of a head.
std::vector<double> of_pairs(std::int64_t head_dim, const RopeFrequencies& frequencies) {
  std::vector<double> result(static_cast<std::size_t>(head_dim / 2));
  for (std::size_t i = 0; i < result.size(); ++i)
    result[i] =
        std::pow(frequencies.theta, -2.0 * static_cast<double>(i) / static_cast<double>(head_dim));
  if (frequencies.scales())
    for (double& frequency : result) frequency = frequencies.scaled(frequency);
  return result;
}

// Rotates the pairs of one head; `to` may be `from`.
template <class S, class A>
void rotate_head(const S* from, S* to, const A* cosine, const A* sine, std::int64_t half) {
  for (std::int64_t i = 0; i < half; ++i) {
    const A a = static_cast<A>(from[i]), b = static_cast<A>(from[i + half]);
    to[i] = static_cast<S>(a * cosine[i] - b * sine[i]);
    to[i + half] = static_cast<S>(b * cosine[i] + a * sine[i]);
  }
}

// Rotates by +1 or -1 times the angle. Angles are made in fp64: at position 10^5 an fp32 angle has
// lost half of its digits.
template <class S>
void rotate(const S* in, const std::int32_t* cu_seqlens, const std::int32_t* seq_idx, S* out,
            std::int64_t tokens, std::int64_t heads, std::int64_t kv_heads, std::int64_t head_dim,
            const RopeFrequencies& frequencies, std::int64_t first_token, double direction) {
  using A = Accumulation<S>;
  constexpr std::int64_t kTokens = 32;
  const std::int64_t width = (heads + 2 * kv_heads) * head_dim, half = head_dim / 2;
  const std::vector<double> frequency = of_pairs(head_dim, frequencies);
  execution::host_for(tokens, kTokens, [&](std::int64_t begin, std::int64_t end) {
    std::vector<A> cosine(frequency.size()), sine(frequency.size());
    for (std::int64_t t = begin; t < end; ++t) {
      const auto position = static_cast<double>(first_token + t - cu_seqlens[seq_idx[t]]);
      for (std::size_t i = 0; i < frequency.size(); ++i) {
        cosine[i] = static_cast<A>(std::cos(position * frequency[i]));
        sine[i] = static_cast<A>(direction * std::sin(position * frequency[i]));
      }
      const S* from = in + t * width;
      S* to = out + t * width;
      for (std::int64_t first = 0; first < (heads + kv_heads) * head_dim; first += head_dim)
        rotate_head(from + first, to + first, cosine.data(), sine.data(), half);
      if (from != to)
        std::copy(from + (heads + kv_heads) * head_dim, from + width,
                  to + (heads + kv_heads) * head_dim);
    }
  });
}

}  // namespace

template <class S>
void rope_forward_ref(const S* in, const std::int32_t* cu_seqlens, const std::int32_t* seq_idx,
                      S* out, std::int64_t tokens, std::int64_t heads, std::int64_t kv_heads,
                      std::int64_t head_dim, const RopeFrequencies& frequencies,
                      std::int64_t first_token) {
  rotate(in, cu_seqlens, seq_idx, out, tokens, heads, kv_heads, head_dim, frequencies, first_token,
         1);
}

template <class S>
void rope_backward_ref(const S* in, const std::int32_t* cu_seqlens, const std::int32_t* seq_idx,
                       S* out, std::int64_t tokens, std::int64_t heads, std::int64_t kv_heads,
                       std::int64_t head_dim, const RopeFrequencies& frequencies,
                       std::int64_t first_token) {
  rotate(in, cu_seqlens, seq_idx, out, tokens, heads, kv_heads, head_dim, frequencies, first_token,
         -1);
}

#define STOWAGE_INSTANTIATE(S)                                                            \
  template void rope_forward_ref(const S*, const std::int32_t*, const std::int32_t*, S*,  \
                                 std::int64_t, std::int64_t, std::int64_t, std::int64_t,  \
                                 const RopeFrequencies&, std::int64_t);                   \
  template void rope_backward_ref(const S*, const std::int32_t*, const std::int32_t*, S*, \
                                  std::int64_t, std::int64_t, std::int64_t, std::int64_t, \
                                  const RopeFrequencies&, std::int64_t);
STOWAGE_INSTANTIATE(double)
STOWAGE_INSTANTIATE(float)
STOWAGE_INSTANTIATE(Bf16)
#undef STOWAGE_INSTANTIATE

}  // namespace stowage::kernels
