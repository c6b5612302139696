#include "parallel/proof/joint_matches.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <map>
#include <string_view>
#include <tuple>
#include <unordered_map>
#include <utility>

namespace stowage::parallel {
namespace {

/// Numbers for what the members of a group must agree in, equal for equal ops.
class Contents {
 public:
  /// Contents of the ops of a program; -1 for exchanges.
  const std::vector<int>& of(const TracedProgram& program) {
    const auto [found, added] = by_program_.try_emplace(&program);
    if (added)
      for (const TracedOp& op : program.ops) found->second.push_back(content(op));
    return found->second;
  }

 private:
  int content(const TracedOp& op) {
    if (op.is_exchange()) return -1;
    std::tuple key(op.name, op.kind, op.count, op.dtype, op.detail);
    return contents_.emplace(std::move(key), static_cast<int>(contents_.size())).first->second;
  }

  std::map<std::tuple<std::string, std::string, std::int64_t, execution::Dtype, std::string>, int>
      contents_;
  /// Ranks with equal programs share them.
  std::unordered_map<const TracedProgram*, std::vector<int>> by_program_;
};

class Matcher {
 public:
  Matcher(std::span<const RankTrace> traces, const JointGroups& groups, std::size_t program,
          std::vector<std::string>& faults)
      : traces_(traces), groups_(groups), program_(program), faults_(faults) {}

  JointMatches match() {
    collect();
    for (int group = 0; group < groups_.size(); ++group) match_collectives(group);
    for (const auto& [pair, stream] : streams_) match_messages(pair, stream);
    return std::move(matches_);
  }

 private:
  /// The collectives of one member of a group.
  struct Sequence {
    std::vector<int> calls;
    std::vector<int> contents;
  };
  struct Message {
    int call;
    std::int64_t count;
    execution::Dtype dtype;
    std::string_view what;
  };
  /// What one rank sends to another, and what this one receives from it.
  struct Stream {
    std::vector<Message> sent;
    std::vector<Message> received;
  };
  using Pair = std::tuple<int, int, int>;  ///< group, from, to: ranks of the job

  const TracedProgram& program_of(int rank) const { return (*traces_[rank].programs)[program_]; }
  const TracedOp& op_of(int rank, int call) const { return op_at(program_of(rank), call); }

  template <class... Args>
  void fault(int group, fmt::format_string<Args...> format, Args&&... args) {
    faults_.push_back(fmt::format("program {}, group {}: {}", program_of(0).name,
                                  groups_.group(group).name,
                                  fmt::format(format, std::forward<Args>(args)...)));
  }

  void collect() {
    for (int g = 0; g < groups_.size(); ++g)
      sequences_.emplace_back(groups_.group(g).members.size());
    for (const RankTrace& trace : traces_) {
      const TracedProgram& program = program_of(trace.rank);
      const std::vector<int>& contents = contents_.of(program);
      std::vector<Sequence*> own;  // by the rank's index of a group
      for (int g = 0; g < static_cast<int>(trace.groups.size()); ++g) {
        const int group = groups_.id(trace.rank, g);
        own.push_back(&sequences_[group][groups_.position(group, trace.rank)]);
      }
      auto& starts = matches_.starts.emplace_back(program.calls.size(), -1);
      for (int call = 0; call < static_cast<int>(program.calls.size()); ++call) {
        const TracedOp& op = op_at(program, call);
        if (op.is_exchange()) {
          starts[call] = std::exchange(matches_.numbers, matches_.numbers + 2);
          collect_messages(trace.rank, call, op);
        } else {
          Sequence& sequence = *own[op.group];
          sequence.calls.push_back(call);
          sequence.contents.push_back(contents[program.calls[call]]);
        }
      }
    }
  }

  void collect_messages(int rank, int call, const TracedOp& op) {
    const int group = groups_.id(rank, op.group);
    const std::vector<int>& members = groups_.group(group).members;
    for (const execution::Transfer& transfer : op.transfers) {
      const bool known = transfer.peer >= 0 && transfer.peer < static_cast<int>(members.size());
      const int peer = known ? members[transfer.peer] : rank;
      if (peer == rank) {
        fault(group, "rank {} names number {} of {} members as a peer in {}", rank, transfer.peer,
              members.size(), describe(op));
        continue;
      }
      Stream& stream = streams_[transfer.sends ? Pair(group, rank, peer) : Pair(group, peer, rank)];
      (transfer.sends ? stream.sent : stream.received)
          .push_back({call, transfer.count, op.dtype, transfer.what});
    }
  }

  void match_collectives(int group) {
    const auto& sequences = sequences_[group];
    const std::vector<int>& members = groups_.group(group).members;
    std::size_t equal = sequences.front().contents.size();
    bool differ = false;
    for (const Sequence& sequence : sequences) {
      const auto& reference = sequences.front().contents;
      const auto end = std::mismatch(reference.begin(), reference.end(), sequence.contents.begin(),
                                     sequence.contents.end());
      differ = differ || end.first != reference.end() || end.second != sequence.contents.end();
      equal = std::min(equal, static_cast<std::size_t>(end.first - reference.begin()));
    }
    if (differ) return report(group, equal);
    for (std::size_t k = 0; k < equal; ++k, ++matches_.numbers)
      for (std::size_t m = 0; m < members.size(); ++m)
        matches_.starts[members[m]][sequences[m].calls[k]] = matches_.numbers;
  }

  /// Says what each member issues at a position where they differ; most are taken to be right.
  void report(int group, std::size_t position) {
    const auto& sequences = sequences_[group];
    const std::vector<int>& members = groups_.group(group).members;
    std::map<int, std::vector<std::size_t>> by_content;  // positions in the group
    for (std::size_t m = 0; m < members.size(); ++m) {
      const std::vector<int>& contents = sequences[m].contents;
      by_content[position < contents.size() ? contents[position] : -1].push_back(m);
    }
    const auto most = std::max_element(
        by_content.begin(), by_content.end(),
        [](const auto& a, const auto& b) { return a.second.size() < b.second.size(); });
    const auto issued = [&](std::size_t m) -> std::string {
      if (position >= sequences[m].calls.size()) return "nothing more";
      return describe(op_of(members[m], sequences[m].calls[position]));
    };
    const auto ranks = [&](const std::vector<std::size_t>& positions) {
      std::vector<int> list;
      for (const std::size_t m : positions) list.push_back(members[m]);
      return fmt::format("{} {}", describe_ranks(list), list.size() == 1 ? "issues" : "issue");
    };
    for (const auto& [content, positions] : by_content)
      if (content != most->first)
        fault(group, "{} {} as number {}, {} {}", ranks(positions), issued(positions.front()),
              position + 1, ranks(most->second), issued(most->second.front()));
  }

  void match_messages(const Pair& pair, const Stream& stream) {
    const auto [group, from, to] = pair;
    const std::size_t most = std::max(stream.sent.size(), stream.received.size());
    for (std::size_t k = 0; k < most; ++k) {
      const Message* sent = k < stream.sent.size() ? &stream.sent[k] : nullptr;
      const Message* received = k < stream.received.size() ? &stream.received[k] : nullptr;
      if (sent != nullptr && received != nullptr && sent->count == received->count &&
          sent->dtype == received->dtype && sent->what == received->what) {
        matches_.messages.push_back({{from, sent->call}, {to, received->call}});
        continue;
      }
      fault(group, "as message {} from rank {} to rank {}, rank {} sends {}, rank {} receives {}",
            k + 1, from, to, from, describe_message(from, sent), to,
            describe_message(to, received));
      return;
    }
  }

  std::string describe_message(int rank, const Message* message) const {
    if (message == nullptr) return "nothing more";
    return fmt::format("{} x {}{}{} in {}", message->count, name(message->dtype),
                       message->what.empty() ? "" : ", ", message->what,
                       describe(op_of(rank, message->call)));
  }

  std::span<const RankTrace> traces_;
  const JointGroups& groups_;
  std::size_t program_;
  std::vector<std::string>& faults_;
  Contents contents_;
  std::vector<std::vector<Sequence>> sequences_;  ///< by group and member
  std::map<Pair, Stream> streams_;
  JointMatches matches_;
};

}  // namespace

const TracedOp& op_at(const TracedProgram& program, int call) {
  const int op = program.calls[call];
  return program.ops[op];
}

int number_at(const TracedProgram& program, int call) {
  const TracedOp& op = op_at(program, call);
  int number = 1;
  for (int earlier = 0; earlier < call; ++earlier) {
    const TracedOp& other = op_at(program, earlier);
    number += other.group == op.group && other.is_exchange() == op.is_exchange();
  }
  return number;
}

JointMatches match_calls(std::span<const RankTrace> traces, const JointGroups& groups,
                         std::size_t program, std::vector<std::string>& faults) {
  return Matcher(traces, groups, program, faults).match();
}

}  // namespace stowage::parallel
