#include "offload/edges.hpp"

#include <algorithm>
#include <utility>
#include <vector>

#include "execution/byte_map.hpp"
#include "execution/clocks.hpp"
#include "execution/contents.hpp"
#include "execution/plan_shape.hpp"
#include "offload/carried.hpp"

namespace stowage::offload {
namespace {

using execution::Access;
using execution::ByteMap;
using execution::Bytes;
using execution::Clocks;
using execution::Place;
using execution::Plan;
using execution::Program;
using execution::Step;
using execution::Use;

/// Issues a plan and adds a wait wherever the order is not yet implied. The join at its end and the
/// fork at its start order one step before the next; where copies are carried into the next, a
/// second execution shows what has to wait for them.
class EdgeMaker {
 public:
  EdgeMaker(const Program& program, Plan& plan, const Chains& chains)
      : program_(program),
        plan_(plan),
        chains_(chains),
        clocks_(static_cast<int>(plan.queues.size()), plan.events),
        done_(plan.steps.size()),
        issued_(plan.steps.size(), 0) {}

  void run() {
    const bool carries = execution::first_carried(plan_) < static_cast<int>(plan_.steps.size());
    for (int execution = 0; execution < (carries ? 2 : 1); ++execution)
      execution::for_each_issued(plan_, 2, [&](int step, int, int) { issue_in_segment(step); });
  }

 private:
  void issue_in_segment(int index) {
    const auto& segments = plan_.segments;
    const auto found =
        std::upper_bound(segments.begin(), segments.end(), index,
                         [](int at, const execution::Segment& s) { return at < s.begin; });
    const execution::Segment* segment = found == segments.begin() ? nullptr : &*std::prev(found);
    if (segment != nullptr && segment->begin == index) clocks_.launch(segment->queue);
    issue(index);
    if (segment != nullptr && segment->end == index + 1) clocks_.end_launch();
  }

  void issue(int index) {
    Step& step = plan_.steps[index];
    for (const int event : step.waits) clocks_.wait(step.queue, event);
    keep_lane_order(index);
    for_each_dependency(step, [&](const ByteMap::Access& earlier) { require(step, earlier); });
    const Clocks::Node node = clocks_.issue(step.queue);
    done_[index] = clocks_.here(step.queue);
    issued_[index] = ++count_;
    if (step.records >= 0) clocks_.record(step.queue, step.records);
    note(step, {node, index});
    if (step.what != Step::What::mark) last_of(step) = {node, index};
  }

  /// Graphs do not keep the order of the queues that they were captured on, nor do the queues that
  /// launch them keep each other's. Collectives must not overtake each other, copies should come
  /// as planned, and kernels should not share the machine: so every lane stays in order.
  void keep_lane_order(int index) {
    Step& step = plan_.steps[index];
    if (step.what != Step::What::mark) require(step, last_of(step));
  }

  /// The last step on the queue of `step`; all compute queues count as one, and so does the
  /// communication of a chain.
  ByteMap::Access& last_of(const Step& step) {
    last_.resize(plan_.queues.size());
    const execution::Lane lane = plan_.queues[step.queue].lane;
    if (chains_.chained && lane == execution::Lane::comm) return last_communication_[apart(step)];
    return last_[lane == execution::Lane::compute ? 0 : static_cast<std::size_t>(step.queue)];
  }

  bool apart(const Step& step) const {
    const auto& what = program_.ops()[step.op].communication;
    return what && what->group == chains_.apart;
  }

  void require(Step& step, const ByteMap::Access& earlier) {
    if (earlier.step < 0 || clocks_.before(earlier.node, step.queue)) return;
    Step& source = plan_.steps[earlier.step];
    if (source.records < 0) {
      source.records = plan_.events++;
      clocks_.set_record(source.records, done_[earlier.step]);
    }
    step.waits.push_back(source.records);
    clocks_.wait(step.queue, source.records);
  }

  long issued(const ByteMap::Access& access) const {
    return access.step < 0 ? 0 : issued_[access.step];
  }

  const Place& place_at(int index) const { return plan_.places[index]; }
  ByteMap& map_of(const Place& place) { return maps_[static_cast<int>(place.region)]; }

  /// Calls `visit(place, bytes of its region, access)` for all operands of a step.
  template <class Visit>
  void for_each_access(const Step& step, Visit&& visit) const {
    if (step.what == Step::What::mark) return;
    if (is_copy(step)) {
      for (std::size_t i = 0; i < step.places.size(); ++i) {
        const Place& place = place_at(step.places[i]);
        visit(place, Bytes{place.offset, place.end()}, i == 1 ? Access::write : Access::read);
      }
      return;
    }
    const auto& op = program_.ops()[step.op];
    for_each_operand(program_, op, step, [&](const Use& use, int at) {
      const Place& place = place_at(at);
      visit(place, bytes_at(program_, use, place), use.access);
    });
  }

  /// What a step must follow: the writer of what it reads; writer and readers of what it writes.
  /// The latest ones come first, so that they imply the others.
  template <class Visit>
  void for_each_dependency(const Step& step, Visit&& visit) {
    std::vector<ByteMap::Access> found;
    for_each_access(step, [&](const Place& place, Bytes bytes, Access access) {
      map_of(place).inspect(bytes.begin, bytes.end, [&](auto, auto, const auto& range) {
        found.push_back(range.writer);
        if (access != Access::read)
          found.insert(found.end(), range.readers.begin(), range.readers.end());
      });
    });
    std::stable_sort(found.begin(), found.end(),
                     [this](const auto& a, const auto& b) { return issued(a) > issued(b); });
    for (const ByteMap::Access& earlier : found) visit(earlier);
  }

  void note(const Step& step, ByteMap::Access access) {
    for_each_access(step, [&](const Place& place, Bytes bytes, Access how) {
      if (how != Access::write) map_of(place).read(bytes.begin, bytes.end, access);
    });
    for_each_access(step, [&](const Place& place, Bytes bytes, Access how) {
      if (how != Access::read) map_of(place).write(bytes.begin, bytes.end, 1, access);
    });
  }

  const Program& program_;
  Plan& plan_;
  const Chains& chains_;
  Clocks clocks_;
  std::vector<Clocks::Record> done_;  ///< by step: what a record after it would hold
  std::vector<long> issued_;          ///< by step: when it was issued last
  long count_ = 0;
  std::vector<ByteMap::Access> last_;      ///< by queue
  ByteMap::Access last_communication_[2];  ///< by whether it is apart
  ByteMap maps_[execution::kRegions];
};

/// By step: whether it is in a graph, and so on no queue but the one that launches it.
std::vector<char> steps_in_graphs(const Plan& plan) {
  std::vector<char> inside(plan.steps.size(), 0);
  for (const execution::Segment& segment : plan.segments)
    std::fill(inside.begin() + segment.begin, inside.begin() + segment.end, char{1});
  return inside;
}

/// Puts a mark on queue 0 at both ends, and forks and joins the other queues there.
void fork_and_join(Plan& plan) {
  const std::vector<char> inside = steps_in_graphs(plan);
  Step fork;
  fork.what = Step::What::mark;
  fork.records = plan.events++;
  Step join;
  join.what = Step::What::mark;
  std::vector<char> seen(plan.queues.size(), 0);
  seen[0] = 1;
  for (std::size_t i = 0; i < plan.steps.size(); ++i) {
    Step& step = plan.steps[i];
    if (inside[i] || seen[step.queue]) continue;
    seen[step.queue] = 1;
    step.waits.push_back(fork.records);
  }
  seen.assign(plan.queues.size(), 0);
  seen[0] = 1;
  for (std::size_t i = plan.steps.size(); i-- > 0;) {
    Step& step = plan.steps[i];
    if (inside[i] || seen[step.queue]) continue;
    seen[step.queue] = 1;
    if (step.records < 0) step.records = plan.events++;
    join.waits.push_back(step.records);
  }
  plan.steps.insert(plan.steps.begin(), fork);
  plan.steps.push_back(join);
  for (execution::StepRange& section : plan.sections) {
    ++section.begin;
    ++section.end;
  }
  plan.sections.front().begin = 0;
  plan.sections.back().end = static_cast<int>(plan.steps.size());
  for (execution::Segment& segment : plan.segments) {
    ++segment.begin;
    ++segment.end;
  }
}

}  // namespace

void add_edges(const Program& program, Plan& plan, const Chains& chains) {
  std::vector<Step> carried = take_carried(plan);
  fork_and_join(plan);
  if (!carried.empty()) {
    carried.erase(carried.begin());  // the join stands there now
    put_back(plan, std::move(carried));
  }
  EdgeMaker(program, plan, chains).run();
}

}  // namespace stowage::offload
