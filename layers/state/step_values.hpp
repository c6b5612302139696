#pragma once

#include <vector>

#include "layers/recording/recorder.hpp"
#include "parallel/groups/sum_tree.hpp"

namespace stowage::layers {

/// What a step tells besides its gradients, added over microbatches and ranks by the same tree as
/// these: of each layer of the whole model its router's losses, two numbers, and what the head
/// tells.
class StepValues {
 public:
  /// @param layers of the whole model that have values, or 0  @param head tensors, all accum
  StepValues(Recorder& recorder, int layers, const std::vector<Tensor>& head,
             const parallel::SumTree& tree);

  /// Where a microbatch stores its part of one that the head tells.
  SomeRows place(Tensor of_head) const;
  /// Behind the head of a microbatch, and behind its backward through layers [begin, end).
  void add_head(Program& program, const parallel::Leaf& microbatch);
  void add_layers(Program& program, int begin, int end, const parallel::Leaf& microbatch);

  /// Behind the last microbatch: what ranks add up. Every node of every rank has a place of its
  /// own, so the order in which ranks are added changes no bit.
  Tensor nodes(Recorder& recorder);
  /// Behind that: what the head tells gets its sum. @param router_losses (2) accum, or none
  void finish(Recorder& recorder, Tensor router_losses) const;

 private:
  struct OfHead {
    Tensor tensor;
    execution::Range rows;
  };

  void add(Program& program, std::int64_t first_layer, execution::Range rows,
           const parallel::Leaf& microbatch);
  static execution::Range rows(std::int64_t begin, std::int64_t end) {
    return {2 * begin, 2 * end};
  }
  std::int64_t elements() const { return head_.back().rows.end; }

  std::int64_t layers_;
  std::vector<OfHead> head_;  ///< behind the layers' values
  parallel::SumTree tree_;
  Tensor values_;             ///< (elements()) accum
  std::vector<Tensor> kept_;  ///< likewise
  Tensor nodes_;              ///< (nodes of all ranks, elements()) accum
};

}  // namespace stowage::layers
