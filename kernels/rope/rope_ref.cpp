#include <algorithm>
#include <cmath>
#include <vector>

#include "execution/host_loops.hpp"
#include "kernels/rope/rope.hpp"

namespace stowage::kernels {

using execution::Accumulation;

namespace {

// Of the pairs of a head's turned dimensions.
std::vector<double> of_pairs(std::int64_t rotary_dim, const RopeFrequencies& frequencies) {
  std::vector<double> result(static_cast<std::size_t>(rotary_dim / 2));
  for (std::size_t i = 0; i < result.size(); ++i)
    result[i] = std::pow(frequencies.theta,
                         -2.0 * static_cast<double>(i) / static_cast<double>(rotary_dim));
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

}  // namespace

// Rotates by +1 or -1 times the angle. Angles are made in fp64: at position 10^5 an fp32 angle has
// lost half of its digits.
template <class S>
void Rope::reference(const Operands<Pointers<S>>& o) const {
  using A = Accumulation<S>;
  constexpr std::int64_t kTokens = 32;
  const std::int64_t half = rotary_dim / 2, values = (heads + kv_heads) * head_dim;
  const double direction = backward ? -1 : 1;
  const std::vector<double> frequency = of_pairs(rotary_dim, frequencies);
  execution::host_for(tokens, kTokens, [&](std::int64_t begin, std::int64_t end) {
    std::vector<A> cosine(frequency.size()), sine(frequency.size());
    for (std::int64_t t = begin; t < end; ++t) {
      const auto position = static_cast<double>(
          positions ? o.positions[t] : first_token + t - o.cu_seqlens[o.seq_idx[t]]);
      for (std::size_t i = 0; i < frequency.size(); ++i) {
        cosine[i] = static_cast<A>(std::cos(position * frequency[i]));
        sine[i] = static_cast<A>(direction * std::sin(position * frequency[i]));
      }
      const S* from = o.in + t * width();
      S* to = o.out + t * width();
      for (std::int64_t first = 0; first < values; first += head_dim) {
        rotate_head(from + first, to + first, cosine.data(), sine.data(), half);
        if (from != to)
          std::copy(from + first + rotary_dim, from + first + head_dim, to + first + rotary_dim);
      }
      if (from != to) std::copy(from + values, from + width(), to + values);
    }
  });
}

STOWAGE_REFERENCES(Rope)

}  // namespace stowage::kernels
