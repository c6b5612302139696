#pragma once

#include <string>
#include <utility>
#include <vector>

#include "execution/verifier.hpp"

namespace stowage::parallel {

/// A program and its plan, written step by step: step 0 is the fork on queue 0, and step i records
/// event i. Ops have no operands; only their order counts.
class HandPlan {
 public:
  /// @param queues besides the main one
  explicit HandPlan(const std::string& name, int queues, int repeat = 1) : program_(name) {
    using execution::Lane;
    program_.begin_section("all");
    plan_.queues.push_back({"compute", Lane::compute});
    for (int q = 1; q <= queues; ++q)
      plan_.queues.push_back({"comm " + std::to_string(q), Lane::comm});
    plan_.sections = {{0, 1, 1}, {1, 1, repeat}, {1, 1, 1}};
    join({});
  }

  /// Calls an op of `group` on a queue, after these steps. @return its step
  int call(std::string name, std::string group, std::vector<int> members, int queue,
           std::vector<int> waits) {
    execution::Op op;
    op.name = std::move(name);
    op.lane = execution::Lane::comm;
    op.communication = execution::Communication{"all_reduce",
                                                std::move(group),
                                                std::move(members),
                                                4096,
                                                execution::Dtype::fp32,
                                                "sum",
                                                {}};
    program_.append(std::move(op));
    const int index = static_cast<int>(program_.ops().size()) - 1;
    return step({.what = execution::Step::What::run,
                 .op = index,
                 .places = {},
                 .queue = queue,
                 .waits = std::move(waits)});
  }
  /// Calls the op of a step again.
  int again(int earlier, int queue, std::vector<int> waits) {
    return step({.what = execution::Step::What::rerun,
                 .op = plan_.steps[earlier].op,
                 .places = {},
                 .queue = queue,
                 .waits = std::move(waits)});
  }
  /// A mark on the main queue.
  int join(std::vector<int> waits) {
    return step({.what = execution::Step::What::mark,
                 .op = -1,
                 .places = {},
                 .queue = 0,
                 .waits = std::move(waits)});
  }
  /// What follows is not repeated.
  void end_repeat() {
    plan_.sections[1].end = static_cast<int>(plan_.steps.size());
    plan_.sections[2].begin = plan_.sections[1].end;
  }
  /// Steps [begin, end) are one graph, on the main queue or another.
  void graph(int begin, int end, int queue = 0) {
    plan_.segments.push_back({begin, end, queue, "graph"});
  }

  execution::PlannedProgram planned() {
    const int steps = static_cast<int>(plan_.steps.size());
    if (plan_.sections[2].begin == 1) plan_.sections[1].end = plan_.sections[2].begin = steps;
    plan_.sections[2].end = steps;
    plan_.events = steps;
    return {&program_, &plan_};
  }

 private:
  int step(execution::Step step) {
    const int index = static_cast<int>(plan_.steps.size());
    step.records = index;
    plan_.steps.push_back(std::move(step));
    return index;
  }

  execution::Program program_;
  execution::Plan plan_;
};

}  // namespace stowage::parallel
