#include "ctest/parallel/joint_jobs.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

namespace stowage::parallel {
namespace {

using execution::Dtype;
using execution::Transfer;

std::size_t at(int index) { return static_cast<std::size_t>(index); }

/// Appends a call of a new op.
void append(TracedProgram& program, TracedOp op) {
  program.calls.push_back(static_cast<int>(program.ops.size()));
  program.ops.push_back(std::move(op));
}

class Maker {
 public:
  Maker(Rng& rng, const JobShape& shape) : rng_(rng), shape_(shape) {
    for (const Group kind : {Group::world, Group::tensor, Group::pipeline, Group::data})
      if (members(shape.grid, 0, axes(kind)).size() > 1) kinds_.push_back(kind);
    for (int rank = 0; rank < shape.grid.ranks(); ++rank) {
      RankTrace& trace = job_.emplace_back();
      trace.rank = rank;
      for (const Group kind : kinds_)
        trace.groups.push_back({std::string(name(kind)), members(shape.grid, rank, axes(kind))});
    }
  }

  std::vector<RankTrace> make() {
    std::vector<std::vector<TracedProgram>> programs(job_.size());
    for (int p = 0; p < shape_.programs; ++p) {
      for (auto& list : programs) list.emplace_back().name = fmt::format("program{}", p);
      for (int event = 0; event < shape_.events; ++event) add_event(event, programs);
      for (auto& list : programs) {
        add_edges(list.back());
        move_calls(list.back());
      }
    }
    for (std::size_t r = 0; r < job_.size(); ++r)
      job_[r].programs = std::make_shared<const std::vector<TracedProgram>>(std::move(programs[r]));
    return std::move(job_);
  }

 private:
  /// A collective or an exchange in all groups of a kind, or in one of them.
  void add_event(int event, std::vector<std::vector<TracedProgram>>& programs) {
    const int kind = draw(rng_, 0, static_cast<int>(kinds_.size()) - 1);
    const bool everywhere = shape_.equal || draw(rng_, 0, 2) > 0;
    const int one_of = draw(rng_, 0, static_cast<int>(job_.size()) - 1);
    TracedOp op;
    op.name = fmt::format("op{}", event);
    op.group = kind;
    static const char* const kKinds[] = {"all_reduce", "reduce_scatter", "all_gather"};
    op.kind = kKinds[draw(rng_, 0, 2)];
    op.count = 64 * draw(rng_, 1, 3);
    op.dtype = draw(rng_, 0, 1) == 0 ? Dtype::fp32 : Dtype::bf16;
    if (op.kind == "all_reduce") op.detail = draw(rng_, 0, 1) == 0 ? "sum" : "max";
    const bool exchanges = !shape_.equal && draw(rng_, 0, 3) == 0;
    for (const RankTrace& trace : job_) {
      const std::vector<int>& group = trace.groups[at(kind)].members;
      if (trace.rank != group.front()) continue;
      if (!everywhere && std::find(group.begin(), group.end(), one_of) == group.end()) continue;
      if (exchanges) {
        add_exchange(event, op, group, programs);
      } else {
        for (const int rank : group) append(programs[at(rank)].back(), op);
      }
    }
  }

  /// Random messages within a group, each of its own count.
  void add_exchange(int event, TracedOp op, const std::vector<int>& group,
                    std::vector<std::vector<TracedProgram>>& programs) {
    const int last = static_cast<int>(group.size()) - 1;
    op.kind = "exchange";
    op.count = 0;
    op.detail.clear();
    std::vector<TracedOp> ops(group.size(), op);
    for (int message = draw(rng_, 1, 3); message > 0; --message) {
      const int from = draw(rng_, 0, last), to = draw(rng_, 0, last);
      if (from == to) continue;
      const std::int64_t count = 10 * (event + 1) + message;
      ops[at(from)].transfers.push_back({to, true, count});
      ops[at(to)].transfers.push_back({from, false, count});
    }
    for (std::size_t m = 0; m < group.size(); ++m)
      if (!ops[m].transfers.empty()) append(programs[at(group[m])].back(), std::move(ops[m]));
  }

  void add_edges(TracedProgram& program) {
    const int last = static_cast<int>(program.calls.size()) - 1;
    if (last < 1) return;
    for (int i = draw(rng_, 0, shape_.edges); i > 0; --i) {
      const int before = draw(rng_, 0, last - 1);
      program.edges.push_back({before, draw(rng_, before + 1, last)});
    }
  }

  /// Exchanges neighbours in issue order that have no order of their own.
  void move_calls(TracedProgram& program) {
    const int last = static_cast<int>(program.calls.size()) - 1;
    if (last < 1) return;
    for (int i = draw(rng_, 0, shape_.moves); i > 0; --i) {
      const int first = draw(rng_, 0, last - 1), second = first + 1;
      const auto group = [&](int call) { return program.ops[at(program.calls[at(call)])].group; };
      const bool ordered =
          std::any_of(program.edges.begin(), program.edges.end(), [&](const TracedEdge& edge) {
            return edge == TracedEdge{first, second};
          });
      if (ordered || group(first) == group(second)) continue;
      std::swap(program.calls[at(first)], program.calls[at(second)]);
      for (TracedEdge& edge : program.edges)
        for (int* end : {&edge.before, &edge.after})
          if (*end == first || *end == second) *end = first + second - *end;
    }
  }

  Rng& rng_;
  const JobShape& shape_;
  std::vector<Group> kinds_;  ///< of more than one rank
  std::vector<RankTrace> job_;
};

}  // namespace

int draw(Rng& rng, int least, int most) {
  return std::uniform_int_distribution<int>(least, most)(rng);
}

std::vector<RankTrace> random_job(Rng& rng, const JobShape& shape) {
  return Maker(rng, shape).make();
}

}  // namespace stowage::parallel
