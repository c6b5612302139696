#pragma once

#include <map>
#include <span>
#include <string>

#include "layers/model/model.hpp"
#include "layers/recording/recorder.hpp"

namespace stowage::layers {

/// The norm of what this rank's backward alone has made of the gradients, before ranks add them up:
/// an attempt at a step whose gradient went wrong on one rank has another own norm there, and on
/// ranks that got something from it, but not on those that work on other sequences. It costs one
/// more read of the gradients.
class OwnNorm {
 public:
  /// @param recorder of the step, outside of microbatches; outlives this
  OwnNorm(Recorder& recorder, const Model& model);

  /// Called behind the ops that complete the gradients of some parameters, before ranks add them.
  void finished(std::span<const Parameter> parameters);
  /// Behind all of them. @param norm (1) accum
  void record(Tensor norm);

 private:
  Recorder& recorder_;
  std::map<std::string, std::int64_t> first_blocks_;  ///< by parameter, among the sums
  std::int64_t blocks_ = 0;
  Tensor sums_;  ///< (blocks) fp64, sums of squares
};

}  // namespace stowage::layers
