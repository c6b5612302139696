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

/// Gradients of which each leaf, some microbatches of a rank, stores its own: they are added to
/// those before by one tree of the step's leaves, which is the same for any number of ranks.
class GradientTree {
 public:
  /// Makes room for what is kept between leaves.
  /// @param layout outlives this
  GradientTree(Program& program, const execution::PersistentLayout& layout,
               const parallel::SumTree& tree);

  /// Called behind the ops that complete the gradients of some parameters of a leaf. Behind the
  /// last one a gradient is the last node of this rank.
  void add(std::span<const Parameter> parameters, const parallel::Leaf& leaf);

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
