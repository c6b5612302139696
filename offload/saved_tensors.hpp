#pragma once

#include <cstddef>
#include <vector>

#include "execution/program.hpp"

namespace stowage::offload {

/// A saved tensor on its way from forward to backward: what a policy decides about. It is used in
/// one section of the program, so all that happens to it repeats with the section.
struct SavedTensor {
  execution::Tensor tensor;
  int section = 0;
  int written = 0;         ///< last op of forward that writes it
  int last_forward = 0;    ///< last op of forward that uses it
  int first_backward = 0;  ///< first op of backward that uses it
};

/// All tensors of a program that have a module name and are used in backward, in the order in which
/// forward writes them. What is written in place by backward is not among them.
std::vector<SavedTensor> find_saved_tensors(const execution::Program& program);

/// For each op, whether it lies in a backward scope.
std::vector<char> backward_ops(const execution::Program& program);

/// Bytes of those buffers that have at least `min_bytes`: smaller ones are never moved.
std::size_t movable_bytes(const execution::TensorInfo& info, std::size_t min_bytes);

}  // namespace stowage::offload
