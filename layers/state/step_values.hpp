#pragma once

#include <vector>

#include "layers/recording/recorder.hpp"
#include "parallel/groups/sum_tree.hpp"

namespace stowage::layers {

/// What a step tells besides its gradients, added over microbatches and ranks by the same tree as
/// these: of each layer of the whole model its router's losses, and the loss. Each is two numbers.
class StepValues {
 public:
  /// @param layers of the whole model that have values, or 0  @param ranks all of the job
  StepValues(Recorder& recorder, int layers, const parallel::SumTree& tree);

  /// Where a microbatch stores its loss.
  SomeRows loss() const { return {values_, rows(layers_, layers_ + 1)}; }
  /// Behind the loss of a microbatch, and behind its backward through layers [begin, end).
  void add_loss(Program& program, const parallel::Leaf& microbatch);
  void add_layers(Program& program, int begin, int end, const parallel::Leaf& microbatch);

  /// Behind the last microbatch: what ranks add up. Every node of every rank has a place of its
  /// own, so the order in which ranks are added changes no bit.
  Tensor nodes(Recorder& recorder);
  /// Behind that. @param loss (2) accum  @param router_losses (2) accum, or none
  void finish(Recorder& recorder, Tensor loss, Tensor router_losses) const;

 private:
  void add(Program& program, std::int64_t begin, std::int64_t end,
           const parallel::Leaf& microbatch);
  static execution::Range rows(std::int64_t begin, std::int64_t end) {
    return {2 * begin, 2 * end};
  }
  std::int64_t elements() const { return 2 * (layers_ + 1); }

  std::int64_t layers_;
  parallel::SumTree tree_;
  Tensor values_;             ///< (2 (layers + 1)) accum
  std::vector<Tensor> kept_;  ///< likewise
  Tensor nodes_;              ///< (nodes of all ranks, 2 (layers + 1)) accum
};

}  // namespace stowage::layers
