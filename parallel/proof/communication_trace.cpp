#include "parallel/proof/communication_trace.hpp"

#include <algorithm>
#include <climits>
#include <utility>

#include "execution/clocks.hpp"
#include "execution/error.hpp"

namespace stowage::parallel {
namespace {

using execution::Clocks;
using execution::Plan;
using execution::PlannedProgram;
using execution::Program;
using execution::Segment;
using execution::Step;

/// The order of a plan's steps in one way of issuing them: with its graphs, or one by one.
class IssueOrder {
 public:
  IssueOrder(const Plan& plan, bool graphs)
      : plan_(plan),
        graphs_(graphs),
        clocks_(static_cast<int>(plan.queues.size()), plan.events),
        segments_(plan.steps.size(), nullptr) {
    for (const Segment& segment : plan.segments)
      for (int step = segment.begin; step < segment.end; ++step) segments_[step] = &segment;
    begin_ = clocks_.issue(0);
  }

  /// Goes on to a step, after the events that it waits for.
  void start(int index) {
    const Step& step = plan_.steps[index];
    const Segment* segment = segments_[index];
    queue_ = step.queue;
    if (segment != nullptr && graphs_ && segment->begin == index) clocks_.launch(segment->queue);
    // The executor issues the compute of every graph on queue 0.
    if (segment != nullptr && !graphs_ && segment->queue == queue_) queue_ = 0;
    for (const int event : step.waits) clocks_.wait(queue_, event);
    node_ = clocks_.issue(queue_);
  }

  void end(int index) {
    const Step& step = plan_.steps[index];
    if (step.records >= 0) clocks_.record(queue_, step.records);
    const Segment* segment = segments_[index];
    if (segment != nullptr && graphs_ && segment->end == index + 1) clocks_.end_launch();
  }

  Clocks::Node node() const { return node_; }
  /// True if a node has ended before the step under way starts.
  bool ended(Clocks::Node node) const { return clocks_.before(node, node_); }
  bool follows_begin() const { return ended(begin_); }
  bool joined(Clocks::Node node) { return clocks_.before(node, 0); }

 private:
  const Plan& plan_;
  bool graphs_;
  Clocks clocks_;
  std::vector<const Segment*> segments_;  ///< by step
  Clocks::Node begin_, node_;
  int queue_ = 0;
};

/// Index of an element equal to `value`, which is appended if there is none.
template <class T>
int index_of(std::vector<T>& list, T value) {
  const auto found = std::find(list.begin(), list.end(), value);
  if (found != list.end()) return static_cast<int>(found - list.begin());
  list.push_back(std::move(value));
  return static_cast<int>(list.size()) - 1;
}

/// Follows one program from its start to its end.
class ProgramTracer {
 public:
  ProgramTracer(const PlannedProgram& planned, std::vector<TracedGroup>& groups)
      : program_(*planned.program), plan_(*planned.plan), groups_(groups) {
    trace_.name = program_.name();
    orders_.emplace_back(plan_, true);
    if (!plan_.segments.empty()) orders_.emplace_back(plan_, false);
    traced_.assign(program_.ops().size(), -1);
  }

  TracedProgram trace() {
    execution::for_each_issued(plan_, INT_MAX, [&](int index, int, int) {
      for (IssueOrder& order : orders_) order.start(index);
      const Step& step = plan_.steps[index];
      if (communicates(step)) call(step);
      for (IssueOrder& order : orders_) order.end(index);
    });
    for (const auto& calls : by_group_)
      if (!calls.empty()) check_joined(calls.back());
    return std::move(trace_);
  }

 private:
  struct Call {
    std::vector<Clocks::Node> nodes;  ///< by issue order
    std::vector<int> ended;  ///< by group: its calls that end before this one does, or with it
    int place = 0;           ///< in its group
  };

  bool communicates(const Step& step) const {
    return (step.what == Step::What::run || step.what == Step::What::rerun) &&
           program_.ops()[step.op].communication.has_value();
  }

  int traced_op(int op) {
    int& traced = traced_[op];
    if (traced >= 0) return traced;
    const execution::Op& from = program_.ops()[op];
    const execution::Communication& c = *from.communication;
    const int group = index_of(groups_, TracedGroup{c.group, c.members});
    trace_.ops.push_back({from.name, group, c.kind, c.count, c.dtype, c.detail, c.transfers});
    traced = static_cast<int>(trace_.ops.size()) - 1;
    return traced;
  }

  /// Calls of a group that have ended when the step under way starts, in one order at least.
  int count_ended(std::size_t group) const {
    const std::vector<int>& calls = by_group_[group];
    std::ptrdiff_t most = 0;
    for (std::size_t o = 0; o < orders_.size(); ++o) {
      const auto end = std::partition_point(calls.begin(), calls.end(), [&](int call) {
        return orders_[o].ended(calls_[call].nodes[o]);
      });
      most = std::max(most, end - calls.begin());
    }
    return static_cast<int>(most);
  }

  /// True if a call has ended when the step under way starts, in every order.
  bool surely_ended(int call) const {
    for (std::size_t o = 0; o < orders_.size(); ++o)
      if (!orders_[o].ended(calls_[call].nodes[o])) return false;
    return true;
  }

  void call(const Step& step) {
    const int index = static_cast<int>(calls_.size());
    trace_.calls.push_back(traced_op(step.op));
    by_group_.resize(groups_.size());
    const auto own = static_cast<std::size_t>(trace_.ops[trace_.calls.back()].group);
    for (const IssueOrder& order : orders_)
      if (!order.follows_begin())
        fail("{} may start before program {} does: it does not follow the plan's fork", index);
    if (!by_group_[own].empty() && !surely_ended(by_group_[own].back()))
      fail("{} of program {} may overtake the call before it in its group", index);
    int& last = last_[groups_[own].name == name(kApart) ? 1 : 0];
    if (last >= 0 && !surely_ended(last)) trace_.loose.push_back(index);
    last = index;

    Call call;
    call.place = static_cast<int>(by_group_[own].size());
    for (const IssueOrder& order : orders_) call.nodes.push_back(order.node());
    follow(call, index, own);
    by_group_[own].push_back(index);
    calls_.push_back(std::move(call));
  }

  /// Finds what a call waits for: of each group the last call that has ended, unless it had ended
  /// before the last one of another group started.
  void follow(Call& call, int index, std::size_t own) {
    std::vector<int> last;  // calls
    for (std::size_t g = 0; g < by_group_.size(); ++g) {
      call.ended.push_back(g == own ? call.place : count_ended(g));
      if (call.ended[g] > 0)
        last.push_back(by_group_[g][static_cast<std::size_t>(call.ended[g]) - 1]);
    }
    for (const int before : last) {
      const auto group = group_of(before);
      const int place = calls_[before].place;
      const bool implied = std::any_of(last.begin(), last.end(), [&](int other) {
        const std::vector<int>& ended = calls_[other].ended;
        return other != before && group < ended.size() && ended[group] > place;
      });
      if (group != own && !implied) trace_.edges.push_back({before, index});
    }
    for (const int before : last) {
      const std::vector<int>& ended = calls_[before].ended;
      for (std::size_t g = 0; g < ended.size(); ++g)
        call.ended[g] = std::max(call.ended[g], ended[g]);
    }
    call.ended[own] = call.place + 1;
  }

  std::size_t group_of(int call) const {
    const int op = trace_.calls[call];
    return static_cast<std::size_t>(trace_.ops[op].group);
  }

  void check_joined(int call) {
    for (std::size_t o = 0; o < orders_.size(); ++o)
      if (!orders_[o].joined(calls_[call].nodes[o]))
        fail("{} may still run when program {} has ended: its queue is not joined", call);
  }

  [[noreturn]] void fail(fmt::format_string<const std::string&, const std::string&> format,
                         int call) const {
    const int op = trace_.calls[call];
    const std::string& name = trace_.ops[op].name;
    throw execution::Error(execution::Exit::runtime, fmt::format(format, name, trace_.name));
  }

  const Program& program_;
  const Plan& plan_;
  std::vector<TracedGroup>& groups_;
  std::vector<IssueOrder> orders_;
  std::vector<int> traced_;  ///< by op: its index in the trace
  std::vector<Call> calls_;
  std::vector<std::vector<int>> by_group_;  ///< calls
  int last_[2] = {-1, -1};                  ///< calls, of each chain
  TracedProgram trace_;
};

}  // namespace

std::string describe(const TracedOp& op) {
  if (op.is_exchange()) return fmt::format("{} {}", op.kind, op.name);
  std::string text = fmt::format("{} {} of {} x {}", op.kind, op.name, op.count, name(op.dtype));
  if (!op.detail.empty()) text += fmt::format(" ({})", op.detail);
  return text;
}

RankTrace trace_communication(int rank, std::span<const PlannedProgram> programs) {
  RankTrace trace;
  trace.rank = rank;
  std::vector<TracedProgram> traced;
  for (const PlannedProgram& planned : programs)
    traced.push_back(ProgramTracer(planned, trace.groups).trace());
  trace.programs = std::make_shared<const std::vector<TracedProgram>>(std::move(traced));
  return trace;
}

}  // namespace stowage::parallel
