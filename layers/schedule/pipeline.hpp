#pragma once

#include "layers/schedule/passes.hpp"

namespace stowage::layers {

/// Ranks that share out the layers of a model: rank r has the stages r, ranks + r, … in turn.
struct PipelineShape {
  int ranks = 1;
  int virtual_stages = 1;  ///< of each rank

  int stages() const { return ranks * virtual_stages; }
  int stage(int rank, int chunk) const { return chunk * ranks + rank; }
};

/// What each rank does with the microbatches of a training step, by rank. Backward follows in the
/// order of forward on every stage, and so do the weights' gradients, so they are added as on one
/// rank.
///
/// 1F1B (arXiv 2104.04473, section 2.2.1): rank s of p goes p - 1 - s microbatches ahead, then
/// forward and backward alternate, so at most p - s microbatches are in flight.
///
/// Interleaved (the same, section 2.2.2): microbatches go in groups of p through one stage of each
/// rank after the other, v of them; rank s goes 2 (p - 1 - s) + (v - 1) p stages of a microbatch
/// ahead. Work is handed on v times as often, in pieces of which each takes 1 / v of the time, so
/// ranks wait 1 / v as long at the ends.
///
/// Zero bubble (ZB-H1 of arXiv 2401.10241): backward alone hands gradients on, and the products
/// that make the weights' gradients come s backwards later, in the time that 1F1B waits at the end;
/// so p microbatches at most are not done with, on any stage. Nobody waits for the backward of the
/// first rank, so it makes its weights' gradients at once, as in 1F1B.
///
/// All of it lies in one section: a microbatch has memory of its own from its forward to its last
/// pass, which a plan gives to a later one.
/// @param times by stage, for with_exchanges
/// @param delayed by rank, of zero bubble: how many microbatches at most are through backward
/// without their weights' gradients; 0: backward makes them; none: most_delayed() of each
/// @throws Error if several stages of a rank are not interleaved, or in groups that are not full
std::vector<RankPasses> train_in_pipeline(PipelineShape shape, int microbatches,
                                          PipelineSchedule schedule,
                                          const std::vector<PassTimes>& times = {},
                                          const std::vector<int>& delayed = {});
/// The microbatches whose weights' gradients fill all that 1F1B has a rank wait at the end, with
/// the one at work.
int most_delayed(int rank);
/// Forward alone.
std::vector<RankPasses> evaluate_in_pipeline(PipelineShape shape, int microbatches,
                                             const std::vector<PassTimes>& times = {});

/// What a pass takes of these times.
double pass_s(const Pass& pass, const PassTimes& times);

/// The passes of all ranks with what ranks exchange between them, so that no order of passes that
/// one rank alone could keep can block.
///
/// A clock in which passes take what is predicted gives each message the time at which it is made.
/// Every rank sends and receives in the order of these times, and all that it
/// moves at one time starts together. So whatever passes really take, the earliest message that is
/// not through yet waits for nothing but passes whose messages are. A rank receives before the pass
/// during which a message is made, so that it comes beside that pass, not behind it.
/// @param passes by rank  @param times by stage, the same on all ranks; none: forward, backward and
/// weights take as long each
std::vector<RankPasses> with_exchanges(PipelineShape shape,
                                       const std::vector<std::vector<Pass>>& passes,
                                       const std::vector<PassTimes>& times = {});

}  // namespace stowage::layers
