#pragma once

#include <map>
#include <span>
#include <string>
#include <vector>

#include "execution/persistent.hpp"
#include "layers/model/stages.hpp"
#include "layers/recording/parameters.hpp"
#include "layers/state/gradient_tree.hpp"
#include "parallel/groups/ranks.hpp"

namespace stowage::layers {

/// How ranks share a step.
struct Sharing {
  parallel::Ranks ranks = parallel::planned_ranks({}, 0);
  /// Masters and moments are cut over the ranks that have the same parameters (ZeRO stage 1, arXiv
  /// 1910.02054): each sums, updates and hands out its shard of every bucket.
  bool zero = false;
  /// What microbatches add to a step is added by one tree: the same bits on any number of data and
  /// pipeline ranks.
  bool same_on_ranks = false;
  int leaf_microbatches = 1;    ///< whose gradients are added in place: a leaf of their tree
  bool bf16_gradients = false;  ///< on the wire: each rank's part is rounded once, sums are wider
  PipelineSchedule schedule = PipelineSchedule::one_forward_one_backward;
  /// Without a pipeline: backward of a microbatch goes beside forward of the next.
  bool overlap_microbatches = false;
  /// Predicted, by stage, the same on all ranks: messages go in the order that follows from them.
  std::vector<PassTimes> stage_times;
  /// Of zero bubble: bytes that a rank may hold of microbatches between passes with gradients of
  /// weights put off (delay_weights), and how many microbatches these are, by rank.
  double zero_bubble_bytes = 0;
  std::vector<int> delayed_weights = {};

  /// The ranks that have the same parameters of a reduction group ("dense", "expert").
  const parallel::RankGroup& holders(const std::string& group) const;
  /// How a bucket of gradients or parameters is shared out (all of it is held), and one of states.
  execution::Shards summed(const std::string& group) const;
  execution::Shards updated(const std::string& group) const;
  /// Of a step's microbatches, `microbatches` of each rank, and of the leaves of their gradients.
  parallel::SumTree tree(int microbatches) const;
  parallel::SumTree gradient_tree(int microbatches) const {
    return tree(microbatches / leaf_microbatches);
  }
};

/// Whether one tree can add the microbatches of a grid: one rank makes all sums within a
/// microbatch, and no two stages have parts of one gradient.
/// @param tied the embedding's weight is the head's
bool one_tree(const parallel::GridShape& grid, bool tied);

/// The reductions of gradients: of repeated rows behind the ops that complete them, of a bucket as
/// soon as its last gradient is complete, so that they go on beside the rest of backward; but
/// behind the exchange that a layer begins with, since compute waits for that one, and for no sum.
class GradientBuckets {
 public:
  /// @param tree by which microbatches have added their gradients, or null  @param sharing, layout
  /// outlive this
  GradientBuckets(execution::Program& program, const execution::PersistentLayout& layout,
                  const Sharing& sharing, const GradientTree* tree = nullptr);

  /// Called behind the ops that complete the gradients of some parameters.
  /// @param exchange_follows sum_due() is called behind the exchange that comes next
  void finished(std::span<const Parameter> parameters, bool exchange_follows);
  /// Appends the sums of all buckets that are complete and were left for later.
  void sum_due();

 private:
  void append(const execution::Bucket& bucket);
  execution::Op sum(const execution::Bucket& bucket, const parallel::Piece& whole);
  execution::Dtype wire(const execution::Bucket& bucket) const;
  execution::Tensor workspace(const execution::Bucket& bucket);

  execution::Program& program_;
  const execution::PersistentLayout& layout_;
  const Sharing& sharing_;
  const GradientTree* tree_;
  std::vector<const execution::Bucket*> due_;
  std::map<std::string, std::size_t> missing_;  ///< by bucket: gradients that are not complete
  std::map<std::string, execution::Tensor>
      workspaces_;  ///< by reduction group, for all its buckets
};

/// With sharded states, fetches the parameters that other ranks updated in the step before: bucket
/// by bucket in the order in which forward comes to them, each beside the layers before it. One
/// that spans layers is wanted by the first of them.
/// @param parameters in backward order, as the layout has them
void gather_parameters(execution::Program& program, const execution::PersistentLayout& layout,
                       const Sharing& sharing, std::span<const Parameter> parameters);

}  // namespace stowage::layers
