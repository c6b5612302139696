#include "parallel/proof/joint_proof.hpp"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "execution/error.hpp"
#include "parallel/proof/joint_groups.hpp"
#include "parallel/proof/joint_matches.hpp"
#include "parallel/proof/order_graph.hpp"

namespace stowage::parallel {
namespace {

const TracedProgram& program_of(const RankTrace& trace, std::size_t program) {
  return (*trace.programs)[program];
}

/// Every rank's programs are those of rank 0.
void check_programs(std::span<const RankTrace> traces, std::vector<std::string>& faults) {
  const auto names = [](const RankTrace& trace) {
    std::vector<std::string> list;
    for (const TracedProgram& program : *trace.programs) list.push_back(program.name);
    return list;
  };
  const std::vector<std::string> expected = names(traces.front());
  for (const RankTrace& trace : traces)
    if (const std::vector<std::string> given = names(trace); given != expected)
      faults.push_back(fmt::format("rank {} has the programs {}; rank 0, {}", trace.rank,
                                   fmt::join(given, ", "), fmt::join(expected, ", ")));
}

/// The order of all ranks' calls in one program.
class JointOrder {
 public:
  JointOrder(std::span<const RankTrace> traces, const JointGroups& groups, std::size_t program,
             const JointMatches& matches, RankOrder order)
      : traces_(traces), groups_(groups), program_(program), matches_(matches), order_(order) {
    for (const RankTrace& trace : traces_) add_rank(trace);
    for (const MetMessage& message : matches_.messages) {
      add_meeting(message.sender, message.receiver);
      add_meeting(message.receiver, message.sender);
    }
  }

  /// Which calls wait for each other for ever; empty: none.
  std::string deadlock() const {
    std::vector<std::string> waits;
    for (const int edge : shortest_cycle(matches_.numbers, edges_)) {
      const Reason& reason = reasons_[edge];
      if (reason.before.rank != reason.after.rank)
        waits.push_back(fmt::format("{} of rank {} ends only when {} of rank {} starts",
                                    call_name(reason.after), reason.after.rank,
                                    call_name(reason.before), reason.before.rank));
      else if (reason.before.call != reason.after.call)
        waits.push_back(fmt::format("rank {} starts {} only after {}", reason.after.rank,
                                    call_name(reason.after), call_name(reason.before)));
    }
    if (waits.empty()) return {};
    return fmt::format("program {} would wait for ever: {}",
                       program_of(traces_.front(), program_).name, fmt::join(waits, "; "));
  }

 private:
  struct Reason {
    RankCall before;
    RankCall after;
  };

  int start(RankCall call) const { return matches_.starts[call.rank][call.call]; }
  int end(RankCall call) const {
    const TracedProgram& program = program_of(traces_[call.rank], program_);
    return start(call) + op_at(program, call.call).is_exchange();
  }

  void add(int before, int after, Reason reason) {
    edges_.push_back({before, after});
    reasons_.push_back(reason);
  }

  void add_rank(const RankTrace& trace) {
    const TracedProgram& program = program_of(trace, program_);
    std::vector<int> last(trace.groups.size(), -1);
    const auto follow = [&](int before, int after) {
      const RankCall first{trace.rank, before}, second{trace.rank, after};
      add(end(first), start(second), {first, second});
    };
    for (int call = 0; call < static_cast<int>(program.calls.size()); ++call) {
      const TracedOp& op = op_at(program, call);
      const RankCall here{trace.rank, call};
      int& before = last[op.group];
      if (before >= 0) follow(before, call);
      if (order_ == RankOrder::chain && call > 0) follow(call - 1, call);
      if (op.is_exchange()) add(start(here), end(here), {here, here});
      before = call;
    }
    for (const TracedEdge& edge : program.edges) follow(edge.before, edge.after);
  }

  void add_meeting(RankCall first, RankCall second) {
    add(start(first), end(second), {first, second});
  }

  std::string call_name(RankCall call) const {
    const RankTrace& trace = traces_[call.rank];
    const TracedProgram& program = program_of(trace, program_);
    const TracedOp& op = op_at(program, call.call);
    return fmt::format("{} {} (number {} of group {})", op.kind, op.name,
                       number_at(program, call.call),
                       groups_.group(groups_.id(call.rank, op.group)).name);
  }

  std::span<const RankTrace> traces_;
  const JointGroups& groups_;
  std::size_t program_;
  const JointMatches& matches_;
  RankOrder order_;
  std::vector<OrderEdge> edges_;
  std::vector<Reason> reasons_;  ///< by edge
};

/// The call of the same chain that was issued last before a loose one.
int before_in_chain(const RankTrace& trace, const TracedProgram& program, int call) {
  const auto apart = [&](int one) {
    return trace.groups[op_at(program, one).group].name == name(kApart);
  };
  int before = call - 1;
  while (before > 0 && apart(before) != apart(call)) --before;
  return before;
}

void check_chains(std::span<const RankTrace> traces, std::size_t program,
                  std::vector<std::string>& faults) {
  for (const RankTrace& trace : traces) {
    const TracedProgram& traced = program_of(trace, program);
    if (traced.loose.empty()) continue;
    const int call = traced.loose.front();
    faults.push_back(fmt::format(
        "program {}: rank {} may run {} beside {}: on a GPU, calls of one chain follow each other",
        traced.name, trace.rank, describe(op_at(traced, call)),
        describe(op_at(traced, before_in_chain(trace, traced, call)))));
  }
}

constexpr std::size_t kMostFaults = 32;

}  // namespace

std::vector<std::string> prove_jointly(std::span<const RankTrace> traces, RankOrder order) {
  std::vector<std::string> faults;
  for (std::size_t r = 0; r < traces.size(); ++r)
    STOWAGE_ASSERT(traces[r].rank == static_cast<int>(r), "trace {} is of rank {}", r,
                   traces[r].rank);
  check_programs(traces, faults);
  const JointGroups groups(traces, faults);
  for (std::size_t p = 0; p < traces.front().programs->size() && faults.empty(); ++p) {
    const JointMatches matches = match_calls(traces, groups, p, faults);
    if (!faults.empty()) break;
    const std::string deadlock = JointOrder(traces, groups, p, matches, order).deadlock();
    if (!deadlock.empty()) faults.push_back(deadlock);
    if (order == RankOrder::chain) check_chains(traces, p, faults);
  }
  if (faults.size() > kMostFaults) faults.resize(kMostFaults);
  return faults;
}

}  // namespace stowage::parallel
