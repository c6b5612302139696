#pragma once

#include <string>
#include <vector>

#include "execution/plan.hpp"

namespace stowage::offload {

/// Which steps of a plan are launched as graphs: the keys of [graphs].
struct GraphOptions {
  enum class Mode : unsigned char { off, scopes, step };
  /// Where copies between device and host are, in mode scopes.
  enum class Copies : unsigned char {
    inside,      ///< branches of the graph that writes or needs their bytes
    overlapping  ///< issued right behind or before that graph, on their own queues
  };

  Mode mode = Mode::off;
  std::vector<std::string> scopes = {};  ///< kinds of scopes that become graphs, in mode scopes
  Copies copies = Copies::inside;
  /// Queues that graphs with copies or collectives are launched on in turn, so that a graph does
  /// not wait for what the ones before it still copy, in mode scopes. 0: all are launched on queue
  /// 0, as in mode step.
  int replay_queues = 16;
  /// Copies to the host leave their graph and are issued after the launch of the next one, or at
  /// the end of their section. In mode scopes.
  bool delay_until_graph = false;
};

/// Chooses the segments of a plan whose steps are in order and not yet placed or tied by events
/// other than the planner's own; add_edges comes later.
///
/// Mode scopes: one segment for each instance of the outermost selected scope, which is a run of
/// compute steps; a rerun goes with the op that follows it. A copy to the host goes with the
/// compute step before it, a copy from the host with the one after it, or beside their graphs and
/// still tied to single steps inside; a collective goes with its scope. Steps of other lanes that
/// lie between those of a segment are moved before or behind it, or into it where an operand leaves
/// no choice. Mode step: all but the copies of inputs and outputs, in one segment for each part of
/// the step that repeats and for each that does not.
/// What lies behind the first window of a state is in none of these.
///
/// A segment that uses several queues starts with a mark that forks them and ends with one that
/// joins them.
void choose_segments(const execution::Program& program, execution::Plan& plan,
                     const GraphOptions& options);

}  // namespace stowage::offload
