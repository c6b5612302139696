#pragma once

#include <optional>
#include <vector>

#include "execution/analysis.hpp"
#include "execution/plan.hpp"

namespace stowage::offload {

/// How saved tensors are computed again: from what is still there, inside one layer.
///
/// What an op reads of a tensor can be computed again if one op writes it, or several do part by
/// part, or an op that is made for reruns does, and if what they read is unchanged and still there,
/// or can be computed again itself. Scratch that is dead by then is; what belongs to another layer
/// is not, so a layer's input ends a chain.
class Reruns {
 public:
  explicit Reruns(const execution::Program& program);

  /// The ops to rerun, in order, so that op `before` finds `tensor`.
  ///
  /// @param decisions of all tensors: those to be recomputed are not there, unless in `present`
  /// @param present by tensor id, whether a tensor to be recomputed is there already
  /// @return nothing if it cannot be computed again
  std::optional<std::vector<int>> chain(execution::Tensor tensor, int before,
                                        const std::vector<execution::Decision>& decisions,
                                        const std::vector<char>& present) const;

 private:
  struct Writer {
    int op;
    execution::Access access;
    execution::Range range;
  };
  struct Search;

  int home(int tensor) const;
  /// Makes `range` of a tensor, and whatever else of it is written.
  bool make(int tensor, execution::Range range, Search& search) const;
  bool try_producer(int op, int layer, Search& search) const;
  bool have(const execution::Use& use, int producer, int layer, Search& search) const;
  bool changed_between(const execution::Use& use, int from, int to) const;
  /// Whether no element has two writers or one that looks at old content, and all of `range` has
  /// one. Elements of buffers behind the first have all writers of the tensor.
  bool written_once(int tensor, execution::Range range) const;

  const execution::Program& program_;
  std::vector<int> layer_;                      ///< by op: its scope of kind "layer", or -1
  std::vector<std::vector<Writer>> writers_;    ///< by tensor, in order
  std::vector<std::vector<int>> rerun_makers_;  ///< by tensor: ops made for reruns that write it
  std::vector<execution::UseSpan> spans_;       ///< by tensor, without ops that only reruns issue
};

/// What one section of a plan runs, in order: the program's ops, each after the reruns that it
/// needs.
struct Run {
  int op = 0;
  bool again = false;
};

std::vector<Run> with_reruns(const execution::Program& program, const Reruns& reruns, int section,
                             const std::vector<execution::Decision>& decisions,
                             const std::vector<char>& backward);

}  // namespace stowage::offload
