#pragma once

#include <cstdint>
#include <span>

namespace stowage::run {

/// How the next token is chosen.
struct Sampling {
  double temperature = 0;  ///< logits are divided by it; 0: the likeliest token is taken
  double top_p = 1;        ///< drawn from the fewest likeliest tokens that have so much probability
  std::uint64_t seed = 0;
};

/// The token with the largest logit; of equal ones the first.
std::int32_t likeliest(std::span<const double> logits);

/// A token of softmax(logits / temperature), cut to the nucleus of top_p: the fewest likeliest
/// tokens whose probabilities add up to at least top_p (arXiv 1904.09751, section 3.1). Of equal
/// logits the first token is the likelier. Temperature 0: likeliest().
/// @param uniform in [0, 1): the token at which the sum of the nucleus's probabilities exceeds it
std::int32_t sample(std::span<const double> logits, const Sampling& sampling, double uniform);

/// ln softmax(logits)[token], in nats, whatever the sampling.
double log_probability(std::span<const double> logits, std::int32_t token);

}  // namespace stowage::run
