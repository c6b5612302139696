#pragma once

#include <string_view>

#include "layers/recording/config.hpp"
#include "layers/recording/partition.hpp"

namespace stowage::layers {

/// The rows of a table that a microbatch's tokens name. Ranks that share the vocabulary each have
/// some of its rows: one that has a token's row gives it, the others give zeros. So does a token
/// that is none (-1).
class Embedding {
 public:
  Embedding(const ModelConfig& config, const parallel::Ranks& ranks);

  const Parameter& weight() const { return weight_; }
  /// @return (rows, D), saved  @param module that it belongs to
  Tensor forward(Recorder& recorder, std::string_view module) const;
  /// The gradient of the table, stored or added.  @param dx (rows, D)
  void backward(Recorder& recorder, Tensor dx, bool accumulate) const;

 private:
  /// Tokens as rows of the part of the table that this rank has; -1: another rank's.
  Tensor local_tokens(Recorder& recorder, const char* name) const;

  std::int64_t width_;
  SharedRows rows_;
  Parameter weight_;
};

}  // namespace stowage::layers
