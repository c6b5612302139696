#pragma once

#include "execution/persistent.hpp"
#include "execution/program.hpp"
#include "layers/model/model.hpp"

namespace stowage::layers {

/// One more token of each of some sequences as a program. What is kept of a sequence lies in
/// Model::sequence_states(); at position 0 a sequence begins, whatever they hold. The logits of the
/// token behind it are among them, as kLogits: they are copied to the host by who asks for them.
struct DecodeProgram {
  Program program{"decode"};
  DecodeShape shape;
  // Inputs.
  Tensor tokens;      ///< (sequences) int32
  Tensor positions;   ///< (sequences) int32, of each token in its sequence
  Tensor cu_seqlens;  ///< (2) int32, 0 and the number of rows: all of them count
  // Outputs.
  Tensor likeliest;          ///< (sequences) int32, the likeliest token behind each
  Tensor log_probabilities;  ///< (sequences) accum, its own in nats; NaN: a logit is not finite
};

/// @param layout with the model's sequence_states() of the shape; outlives the program
/// @throws Error (exit 2) for a letter whose kind has no form for one more token
DecodeProgram record_decode(const Model& model, const DecodeShape& shape,
                            const execution::PersistentLayout& layout);

}  // namespace stowage::layers
