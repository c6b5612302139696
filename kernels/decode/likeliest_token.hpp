#pragma once

#include "kernels/operator.hpp"

namespace stowage::kernels {

/// Of each row of logits the token with the largest one, of equal ones the first, and
/// ln softmax(logits)[token] in nats. A row with a logit that is not finite has NaN, and any token.
struct LikeliestToken {
  static constexpr std::string_view kName = "likeliest_token";
  std::int64_t rows, vocabulary;
  execution::Dtype storage;

  template <class T>
  struct Operands {
    SumsIn<T> logits;
    Of<T, std::int32_t> tokens;
    SumsOut<T> log_probabilities;
  };
  void each(auto&& f, auto&... o) const {
    const execution::Dtype dtype = execution::accumulation(storage);
    f(in("logits", dtype, {rows, vocabulary}), o.logits...);
    f(out("tokens", execution::Dtype::int32, {rows}), o.tokens...);
    f(out("log_probabilities", dtype, {rows}), o.log_probabilities...);
  }
  STOWAGE_OPERATOR_MEMBERS;
};

}  // namespace stowage::kernels
