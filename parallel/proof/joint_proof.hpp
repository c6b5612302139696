#pragma once

#include <span>
#include <string>
#include <vector>

#include "parallel/proof/communication_trace.hpp"

namespace stowage::parallel {

/// What the machine asks of the communication of one rank.
enum class RankOrder : unsigned char {
  partial,  ///< calls of several groups may run at once
  /// One after the other, those of kApart and all others: on a GPU, two that wait for each other's
  /// room can block.
  chain
};

/// Proves that no rank of a job can wait for ever, whatever programs follow each other, as long as
/// all ranks run the same one.
///
/// Checked: ranks have the same programs by number and name; the members of a group agree who they
/// are; in each program they issue equal collectives in equal order (name, kind, count, dtype,
/// detail), and every message of an exchange meets one of its peer (count, dtype, what
/// it is called, in order); and
/// the order of all ranks' calls together has no cycle, where the calls of a collective are one
/// event and an exchange ends when those that it meets have started. That is enough for any number
/// of steps: trace_communication lets no call overlap another program, so a cycle would lie within
/// one program, and the k-th program of a rank meets the k-th of the others.
///
/// With RankOrder::chain the calls of each rank follow each other as issued, in two chains. The
/// joint order is proved as if they were one, so that no rank blocks either if its machine starts
/// nothing before what was issued before it: all ranks' chains are parts of one order.
///
/// @param traces of all ranks of the job, in their order
/// @return what is wrong, by name of op and rank; empty: proven. At most 32 sentences. Of a
/// deadlock a shortest cycle is told.
/// Cost: 64 ranks with 19 000 calls each, no two ranks alike, are read and proved in about a second
/// and 0.5 GB, and a cycle in them takes a second more to tell
/// (ctest/parallel/joint_proof_cost_test.cpp).
std::vector<std::string> prove_jointly(std::span<const RankTrace> traces,
                                       RankOrder order = RankOrder::partial);

}  // namespace stowage::parallel
