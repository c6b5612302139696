#pragma once

#include "layers/recording/recorder.hpp"

namespace stowage::layers {

/// Name of the sums (layers + 1) accum over all rows of a training step, of all ranks, of the mean
/// squares of the residual stream that each layer of the whole model reads, and the head, if its
/// program has them (ModelConfig::tells_stream).
inline constexpr const char* kStreamSquares = "stream_squares";

/// Adds those of this rank's rows, if the program has them. The norm that reads the stream has kept
/// all that is needed. Nothing is added for heads of further tokens.
/// @param rstd (rows) accum, of the norm  @param place the layer's number
void add_stream_squares(Recorder& recorder, Tensor rstd, double epsilon, int place);

}  // namespace stowage::layers
