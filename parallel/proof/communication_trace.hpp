#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "execution/verifier.hpp"
#include "parallel/groups/grid.hpp"

/// What the other ranks need to know of one rank's plans to prove that all of them together cannot
/// block: which communication ops it issues, in which order, and which of them wait for which.

namespace stowage::parallel {

/// The group whose calls are a chain of their own: a message that waits for another stage must not
/// hold up what layers exchange. Two calls at once have room on any GPU when its kernels end.
inline constexpr Group kApart = Group::pipeline;

/// A group that a rank communicates in.
struct TracedGroup {
  std::string name;
  std::vector<int> members;  ///< ranks of the job, in the group's order

  friend bool operator==(const TracedGroup&, const TracedGroup&) = default;
};

/// A communication op, once however often it is called; see execution::Communication.
struct TracedOp {
  std::string name;
  int group = 0;  ///< index in RankTrace::groups
  std::string kind;
  std::int64_t count = 0;
  execution::Dtype dtype = execution::Dtype::fp32;
  std::string detail;
  std::vector<execution::Transfer> transfers;

  /// Sends and receives that start together: each meets one of its peer, not a call of all members.
  bool is_exchange() const { return kind == "exchange"; }

  friend bool operator==(const TracedOp&, const TracedOp&) = default;
};

/// "all_gather parameters/dense/2 of 4096 x bf16": how messages name an op.
std::string describe(const TracedOp& op);

/// Call `after` starts only when call `before` has ended.
struct TracedEdge {
  int before = 0;
  int after = 0;

  friend bool operator==(const TracedEdge&, const TracedEdge&) = default;
};

/// The communication of one execution of a program on one rank.
struct TracedProgram {
  std::string name;
  std::vector<TracedOp> ops;
  std::vector<int> calls;  ///< indices in ops, in issue order; repeated sections are written out
  /// Between calls of different groups, none that follows from others. The calls of one group need
  /// none: each starts when the one before it has ended.
  std::vector<TracedEdge> edges;
  /// Calls that may run beside the one issued before them in their chain (RankOrder::chain).
  std::vector<int> loose;

  friend bool operator==(const TracedProgram&, const TracedProgram&) = default;
};

/// The communication of one rank in a run.
struct RankTrace {
  int rank = 0;  ///< in the job
  std::vector<TracedGroup> groups;
  /// Ranks that do the same in groups of other members share one list.
  std::shared_ptr<const std::vector<TracedProgram>> programs;
};

/// The trace of the programs of a run as planned on this rank, each proved by execution::verify.
///
/// An edge is in the trace if it holds when the steps of graphs are issued one by one or when the
/// graphs are launched, so that ranks may differ in this. Reruns of communication ops are calls
/// too. Each program stands alone: its calls follow the start of its plan on queue 0 and precede
/// the end, so no call overlaps one of the program before or after it, whichever these are.
/// @throws Error if a call does not, or if two calls of a group have no order
RankTrace trace_communication(int rank, std::span<const execution::PlannedProgram> programs);

}  // namespace stowage::parallel
