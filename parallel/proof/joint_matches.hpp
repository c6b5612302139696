#pragma once

#include <span>
#include <string>
#include <vector>

#include "parallel/proof/communication_trace.hpp"
#include "parallel/proof/joint_groups.hpp"

namespace stowage::parallel {

/// A call of a rank: its place in TracedProgram::calls.
struct RankCall {
  int rank = 0;
  int call = 0;
};

/// Two exchanges, of which one receives what the other sends.
struct MetMessage {
  RankCall sender;
  RankCall receiver;
};

/// Which calls of the ranks meet in one program.
struct JointMatches {
  /// By rank and call. A collective is one number for all of its members; an exchange is two for
  /// each call: its start, and its end, which is one more.
  std::vector<std::vector<int>> starts;
  std::vector<MetMessage> messages;
  int numbers = 0;
};

/// The op of a call.
const TracedOp& op_at(const TracedProgram& program, int call);

/// Its place among the collectives, or exchanges, of its group on its rank, from 1.
int number_at(const TracedProgram& program, int call);

/// Matches the calls of all ranks in program number `program`: the k-th collectives of a group's
/// members, which must agree in name, kind, count, dtype and detail, and the k-th message from one
/// rank to another of a group with the k-th that this one receives, in count and dtype.
/// @param faults gets the first difference of each group, and of each pair of ranks; after one, the
/// matches are of no use
JointMatches match_calls(std::span<const RankTrace> traces, const JointGroups& groups,
                         std::size_t program, std::vector<std::string>& faults);

}  // namespace stowage::parallel
