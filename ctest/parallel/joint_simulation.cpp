#include "ctest/parallel/joint_simulation.hpp"

#include <algorithm>
#include <deque>
#include <map>
#include <tuple>
#include <vector>

namespace stowage::parallel {
namespace {

std::size_t at(int index) { return static_cast<std::size_t>(index); }

class Simulation {
 public:
  Simulation(std::span<const RankTrace> traces, std::size_t program) {
    for (const RankTrace& trace : traces) {
      Rank& rank = ranks_.emplace_back();
      rank.trace = &trace;
      rank.program = &(*trace.programs)[program];
      rank.calls.resize(rank.program->calls.size());
      for (std::size_t call = 0; call < rank.calls.size(); ++call)
        rank.waiting[op(rank, static_cast<int>(call)).group].push_back(static_cast<int>(call));
    }
  }

  bool run() {
    do {
      progress_ = false;
      for (Rank& rank : ranks_)
        for (auto& [group, waiting] : rank.waiting)
          if (!waiting.empty()) advance(rank, waiting.front());
    } while (progress_ && !mismatch_);
    const auto finished = [](const Rank& rank) {
      return std::all_of(rank.calls.begin(), rank.calls.end(), [](auto& c) { return c.ended; });
    };
    return !mismatch_ && std::all_of(ranks_.begin(), ranks_.end(), finished);
  }

 private:
  struct CallState {
    bool started = false;
    bool ended = false;
    int messages_left = 0;
  };
  struct Rank {
    const RankTrace* trace = nullptr;
    const TracedProgram* program = nullptr;
    std::vector<CallState> calls;
    std::map<int, std::deque<int>> waiting;  ///< by the rank's index of a group: what has not ended
  };
  struct Message {
    int rank;
    int call;
    std::int64_t count;
    execution::Dtype dtype;
  };
  /// Name and members of a communicator, sender, receiver.
  using Channel = std::tuple<std::string, std::vector<int>, int, int>;

  static const TracedOp& op(const Rank& rank, int call) {
    return rank.program->ops[at(rank.program->calls[at(call)])];
  }
  static const TracedGroup& group(const Rank& rank, const TracedOp& op) {
    return rank.trace->groups[at(op.group)];
  }

  void advance(Rank& rank, int call) {
    CallState& state = rank.calls[at(call)];
    if (!state.started && may_start(rank, call)) {
      state.started = true;
      progress_ = true;
      if (op(rank, call).is_exchange()) post(rank, call);
    }
    if (state.started && !state.ended && !op(rank, call).is_exchange()) meet(rank, call);
  }

  static bool may_start(const Rank& rank, int call) {
    return std::all_of(rank.program->edges.begin(), rank.program->edges.end(),
                       [&](const TracedEdge& edge) {
                         return edge.after != call || rank.calls[at(edge.before)].ended;
                       });
  }

  void end(Rank& rank, int call) {
    rank.calls[at(call)].ended = true;
    rank.waiting[op(rank, call).group].pop_front();
    progress_ = true;
  }

  void post(Rank& rank, int call) {
    const TracedOp& exchange = op(rank, call);
    const TracedGroup& of = group(rank, exchange);
    rank.calls[at(call)].messages_left = static_cast<int>(exchange.transfers.size());
    const int self = rank.trace->rank;
    for (const execution::Transfer& transfer : exchange.transfers) {
      if (transfer.peer < 0 || transfer.peer >= static_cast<int>(of.members.size()) ||
          of.members[at(transfer.peer)] == self) {
        mismatch_ = true;
        return;
      }
      const int peer = of.members[at(transfer.peer)];
      const Channel channel(of.name, of.members, transfer.sends ? self : peer,
                            transfer.sends ? peer : self);
      auto& mine = (transfer.sends ? sent_ : received_)[channel];
      auto& theirs = (transfer.sends ? received_ : sent_)[channel];
      const Message message{self, call, transfer.count, exchange.dtype};
      if (theirs.empty()) {
        mine.push_back(message);
        continue;
      }
      const Message other = theirs.front();
      theirs.pop_front();
      if (other.count != message.count || other.dtype != message.dtype) mismatch_ = true;
      pass(message);
      pass(other);
    }
  }

  void pass(const Message& message) {
    Rank& rank = ranks_[at(message.rank)];
    if (--rank.calls[at(message.call)].messages_left == 0) end(rank, message.call);
  }

  /// Ends a collective on all members if all are there.
  void meet(Rank& rank, int call) {
    const TracedOp& mine = op(rank, call);
    const TracedGroup& of = group(rank, mine);
    std::vector<std::pair<Rank*, int>> there;
    for (const int member : of.members) {
      Rank& other = ranks_[at(member)];
      for (auto& [index, waiting] : other.waiting) {
        if (other.trace->groups[at(index)] != of || waiting.empty()) continue;
        const int next = waiting.front();
        if (other.calls[at(next)].started && !op(other, next).is_exchange())
          there.emplace_back(&other, next);
      }
    }
    if (there.size() < of.members.size()) return;
    for (auto& [other, next] : there) {
      const TracedOp& theirs = op(*other, next);
      if (std::tie(mine.name, mine.kind, mine.count, mine.dtype, mine.detail) !=
          std::tie(theirs.name, theirs.kind, theirs.count, theirs.dtype, theirs.detail))
        mismatch_ = true;
    }
    for (auto& [other, next] : there) end(*other, next);
  }

  std::vector<Rank> ranks_;
  std::map<Channel, std::deque<Message>> sent_, received_;  ///< that no partner has come for
  bool progress_ = false;
  bool mismatch_ = false;
};

}  // namespace

bool runs_to_end(std::span<const RankTrace> traces, std::size_t program) {
  return Simulation(traces, program).run();
}

}  // namespace stowage::parallel
