#pragma once

#include <map>
#include <span>
#include <string>
#include <vector>

#include "execution/persistent.hpp"
#include "layers/recording/recorder.hpp"
#include "parallel/groups/sum_tree.hpp"

namespace stowage::layers {

/// Whether a tensor or an op, by its name, is of the sums that a GradientTree keeps.
bool is_of_tree(const std::string& name);

/// Gradients of which each microbatch stores its own: they are added to those before by the tree of
/// the step's microbatches, which is the same for any number of ranks and microbatches of a rank.
class GradientTree {
 public:
  /// Makes room for what is kept between microbatches, and clears it.
  /// @param layout outlives this
  GradientTree(Recorder& recorder, const execution::PersistentLayout& layout,
               const parallel::SumTree& tree);

  /// Called behind the ops that complete the gradients of some parameters of a microbatch. Behind
  /// the last one a gradient is the last node of this rank.
  void add(std::span<const Parameter> parameters, const parallel::Leaf& microbatch);

  const parallel::SumTree& tree() const { return tree_; }
  /// The nodes before the last one, each with all elements of a bucket.
  const std::vector<Tensor>& kept(const std::string& bucket) const { return kept_.at(bucket); }

 private:
  Program& program_;
  const execution::PersistentLayout& layout_;
  parallel::SumTree tree_;
  std::map<std::string, std::vector<Tensor>> kept_;  ///< by bucket
};

}  // namespace stowage::layers
