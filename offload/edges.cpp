#include "offload/edges.hpp"

#include <algorithm>
#include <vector>

#include "execution/byte_map.hpp"
#include "execution/plan_shape.hpp"

namespace stowage::offload {
namespace {

using execution::Access;
using execution::ByteMap;
using execution::Clocks;
using execution::Place;
using execution::Plan;
using execution::Program;
using execution::Step;
using execution::Use;

/// Issues a plan twice and adds a wait wherever the order is not yet implied.
class EdgeMaker {
 public:
  EdgeMaker(const Program& program, Plan& plan)
      : program_(program), plan_(plan), latest_(plan.steps.size()) {}

  void run() {
    for (int replay = 0; replay < 2; ++replay)
      execution::for_each_issued(plan_, 2, [&](int step, int, int) { issue(step); });
  }

 private:
  using Clock = std::vector<long>;

  struct Issued {
    Clocks::Node node;
    Clock clock;
  };

  Clock& clock_of(int queue) {
    if (clocks_.empty()) clocks_.assign(plan_.queues.size(), Clock(plan_.queues.size(), 0));
    return clocks_[static_cast<std::size_t>(queue)];
  }

  static void join(Clock& clock, const Clock& other) {
    for (std::size_t i = 0; i < clock.size(); ++i) clock[i] = std::max(clock[i], other[i]);
  }

  void issue(int index) {
    Step& step = plan_.steps[static_cast<std::size_t>(index)];
    Clock& clock = clock_of(step.queue);
    for (const int event : step.waits)
      if (const Clock& record = record_of(event); !record.empty()) join(clock, record);
    for_each_dependency(step,
                        [&](const ByteMap::Access& earlier) { require(step, clock, earlier); });
    ++clock[static_cast<std::size_t>(step.queue)];
    const Clocks::Node node{step.queue, clock[static_cast<std::size_t>(step.queue)]};
    latest_[static_cast<std::size_t>(index)] = {node, clock};
    note(step, {node, index});
  }

  /// The clock of an event's latest record; empty before the first.
  const Clock& record_of(int event) {
    if (recorder_.size() < static_cast<std::size_t>(plan_.events)) {
      recorder_.assign(static_cast<std::size_t>(plan_.events), 0);
      for (std::size_t i = 0; i < plan_.steps.size(); ++i)
        if (plan_.steps[i].records >= 0)
          recorder_[static_cast<std::size_t>(plan_.steps[i].records)] = i;
    }
    return latest_[recorder_[static_cast<std::size_t>(event)]].clock;
  }

  void require(Step& step, Clock& clock, const ByteMap::Access& earlier) {
    if (earlier.step < 0 || earlier.node.queue == step.queue ||
        clock[static_cast<std::size_t>(earlier.node.queue)] >= earlier.node.position)
      return;
    Step& source = plan_.steps[static_cast<std::size_t>(earlier.step)];
    if (source.records < 0) source.records = plan_.events++;
    step.waits.push_back(source.records);
    join(clock, latest_[static_cast<std::size_t>(earlier.step)].clock);
  }

  const Place& place_at(int index) const { return plan_.places[static_cast<std::size_t>(index)]; }
  ByteMap& bytes_of(const Place& place) { return maps_[static_cast<int>(place.region)]; }

  /// Calls `visit(place, access)` for all operands of a step.
  template <class Visit>
  void for_each_access(const Step& step, Visit&& visit) const {
    if (step.what == Step::What::mark) return;
    if (step.what == Step::What::copy_out || step.what == Step::What::copy_in) {
      visit(place_at(step.places[0]), Access::read);
      visit(place_at(step.places[1]), Access::write);
      return;
    }
    const auto& op = program_.ops()[static_cast<std::size_t>(step.op)];
    for_each_operand(program_, op, step,
                     [&](const Use& use, int place) { visit(place_at(place), use.access); });
  }

  /// What a step must follow: the writer of what it reads; writer and readers of what it writes.
  /// The latest ones come first, so that they imply the others.
  template <class Visit>
  void for_each_dependency(const Step& step, Visit&& visit) {
    std::vector<ByteMap::Access> found;
    for_each_access(step, [&](const Place& place, Access access) {
      bytes_of(place).inspect(place.offset, place.end(), [&](auto, auto, const auto& range) {
        found.push_back(range.writer);
        if (access != Access::read)
          found.insert(found.end(), range.readers.begin(), range.readers.end());
      });
    });
    std::stable_sort(found.begin(), found.end(), [](const auto& a, const auto& b) {
      return a.node.position > b.node.position;
    });
    for (const ByteMap::Access& earlier : found) visit(earlier);
  }

  void note(const Step& step, ByteMap::Access access) {
    for_each_access(step, [&](const Place& place, Access how) {
      if (how != Access::write) bytes_of(place).read(place.offset, place.end(), access);
    });
    for_each_access(step, [&](const Place& place, Access how) {
      if (how != Access::read) bytes_of(place).write(place.offset, place.end(), 1, access);
    });
  }

  const Program& program_;
  Plan& plan_;
  std::vector<Clock> clocks_;
  std::vector<Issued> latest_;
  std::vector<std::size_t> recorder_;  ///< the step that records each event
  ByteMap maps_[execution::kRegions];
};

/// Puts a mark on queue 0 at both ends, and forks and joins the other queues there.
void fork_and_join(Plan& plan) {
  Step fork;
  fork.what = Step::What::mark;
  fork.records = plan.events++;
  Step join;
  join.what = Step::What::mark;
  std::vector<char> seen(plan.queues.size(), 0);
  seen[0] = 1;
  for (Step& step : plan.steps)
    if (!seen[static_cast<std::size_t>(step.queue)]) {
      seen[static_cast<std::size_t>(step.queue)] = 1;
      step.waits.push_back(fork.records);
    }
  seen.assign(plan.queues.size(), 0);
  seen[0] = 1;
  for (std::size_t i = plan.steps.size(); i-- > 0;) {
    Step& step = plan.steps[i];
    if (seen[static_cast<std::size_t>(step.queue)]) continue;
    seen[static_cast<std::size_t>(step.queue)] = 1;
    if (step.records < 0) step.records = plan.events++;
    join.waits.push_back(step.records);
  }
  plan.steps.insert(plan.steps.begin(), fork);
  plan.steps.push_back(join);
  for (execution::StepRange& section : plan.sections) {
    if (section.begin > 0) ++section.begin;
    ++section.end;
  }
  plan.sections.back().end = static_cast<int>(plan.steps.size());
}

}  // namespace

void add_edges(const Program& program, Plan& plan) {
  fork_and_join(plan);
  EdgeMaker(program, plan).run();
}

}  // namespace stowage::offload
