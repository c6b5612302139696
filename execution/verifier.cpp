#include "execution/verifier.hpp"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <utility>

#include "execution/byte_map.hpp"
#include "execution/clocks.hpp"
#include "execution/error.hpp"
#include "execution/plan_shape.hpp"

namespace stowage::execution {
namespace {

/// Follows the bytes of all regions and the order of all queues while programs are issued.
class Proof {
 public:
  Proof(std::span<const PlannedProgram> programs, std::vector<std::string>& faults)
      : programs_(programs), faults_(faults), clocks_(count_queues(), count_events()) {
    for (std::size_t p = 0; p < programs_.size(); ++p) place_persistent(static_cast<int>(p));
  }

  void issue(int program) {
    program_ = program;
    const Segment* segment = nullptr;
    for_each_issued(plan(), 2, [&](int step, int, int) {
      if (segment == nullptr) segment = launch_at(step);
      issue_step(step);
      if (segment != nullptr && segment->end == step + 1) {
        end_launch(*segment);
        segment = nullptr;
      }
    });
    for (int q = 0; q < static_cast<int>(plan().queues.size()); ++q)
      if (!clocks_.before(clocks_.latest(queue_of(q)), queue_of(0)))
        fault("queue {} is not joined at the end of program {}",
              plan().queues[static_cast<std::size_t>(q)].name, current().name());
  }

 private:
  struct Seen {
    int program;
    int step;
  };

  const Program& current() const { return *programs_[static_cast<std::size_t>(program_)].program; }
  const Plan& plan() const { return *programs_[static_cast<std::size_t>(program_)].plan; }

  template <class... Args>
  void fault(fmt::format_string<Args...> format, Args&&... args) {
    faults_.push_back(fmt::format(format, std::forward<Args>(args)...));
  }

  int count_queues() {
    for (const PlannedProgram& planned : programs_) {
      auto& ids = queue_ids_.emplace_back();
      for (const QueueInfo& queue : planned.plan->queues)
        ids.push_back(by_queue_name_.emplace(queue.name, static_cast<int>(by_queue_name_.size()))
                          .first->second);
    }
    return static_cast<int>(by_queue_name_.size());
  }

  int count_events() {
    int events = 0;
    for (const PlannedProgram& planned : programs_) {
      recorders_.push_back(recorders(*planned.plan));
      first_event_.push_back(events);
      events += planned.plan->events;
    }
    return events;
  }

  int queue_of(int plan_queue) const {
    return queue_ids_[static_cast<std::size_t>(program_)][static_cast<std::size_t>(plan_queue)];
  }
  int event_of(int plan_event) const {
    return first_event_[static_cast<std::size_t>(program_)] + plan_event;
  }

  /// A persistent tensor is the same content in every program; any other is its program's own.
  std::int64_t content_of(int program, const Place& place) {
    const Program& owner = *programs_[static_cast<std::size_t>(program)].program;
    const TensorInfo& info = owner.info(place.tensor);
    const int scope = is_persistent(info.lifetime) ? -1 : program;
    const auto key = std::tuple(scope, info.name, place.buffer);
    const auto [found, added] =
        contents_.emplace(key, static_cast<std::int64_t>(contents_.size()) + 1);
    if (added) content_names_.push_back(info.name);
    return found->second;
  }
  const std::string& content_name(std::int64_t content) const {
    return content_names_[static_cast<std::size_t>(content - 1)];
  }

  /// Parameters and optimizer states hold their values before the first step.
  void place_persistent(int program) {
    program_ = program;
    for (const Place& place : plan().places) {
      if (place.region != Region::persistent) continue;
      const std::int64_t content = content_of(program, place);
      bytes_of(place).inspect(place.offset, place.end(), [&](auto, auto, const auto& range) {
        if (range.content != content || range.origin != place.offset)
          fault("persistent tensors {} and {} share bytes", current().info(place.tensor).name,
                content_name(range.content));
      });
      if (current().info(place.tensor).lifetime != Lifetime::gradient)
        bytes_of(place).write(place.offset, place.end(), content, {});
    }
  }

  ByteMap& bytes_of(const Place& place) { return maps_[static_cast<int>(place.region)]; }

  std::string describe_seen(int seen) const {
    if (seen < 0) return "the initial state";
    const Seen& s = history_[static_cast<std::size_t>(seen)];
    const PlannedProgram& planned = programs_[static_cast<std::size_t>(s.program)];
    return describe(*planned.program, planned.plan->steps[static_cast<std::size_t>(s.step)]);
  }

  /// Starts the launch of the segment that begins at a step, if one does.
  const Segment* launch_at(int step) {
    const auto& segments = plan().segments;
    const auto found =
        std::lower_bound(segments.begin(), segments.end(), step,
                         [](const Segment& segment, int at) { return segment.begin < at; });
    if (found == segments.end() || found->begin != step) return nullptr;
    clocks_.launch(queue_of(found->queue));
    return &*found;
  }

  /// What is not joined when a capture ends makes it fail.
  void end_launch(const Segment& segment) {
    const int origin = queue_of(segment.queue);
    for (int q = 0; q < static_cast<int>(plan().queues.size()); ++q)
      if (const int queue = queue_of(q);
          clocks_.forked(queue) && !clocks_.before(clocks_.latest(queue), origin))
        fault("graph {}: what was forked to queue {} is not joined", segment.name,
              plan().queues[static_cast<std::size_t>(q)].name);
    clocks_.end_launch();
  }

  /// Ranks match the communication of a group by its order, so it has one on every rank.
  void check_communication(const Step& step, ByteMap::Access access) {
    if (step.what != Step::What::run) return;
    const auto& communication = current().ops()[static_cast<std::size_t>(step.op)].communication;
    if (!communication) return;
    ByteMap::Access& last = communicated_[communication->group];
    if (!clocks_.before(last.node, access.node))
      fault("{} may overtake {} in group {}: missing edge{}", describe(current(), step),
            describe_seen(last.step), communication->group, stale_note());
    last = access;
  }

  /// A step of a graph is captured only if its queue is in the capture.
  void check_captured(const Step& step, int queue) {
    if (!clocks_.launching() || clocks_.forked(queue)) return;
    fault("{} is not forked from its graph: on queue {} it would run at the capture",
          describe(current(), step), plan().queues[static_cast<std::size_t>(step.queue)].name);
  }

  void issue_step(int index) {
    const Step& step = plan().steps[static_cast<std::size_t>(index)];
    const int queue = queue_of(step.queue);
    stale_.clear();
    for (const int event : step.waits)
      if (!clocks_.wait(queue, event_of(event)) || recorded_later(event, index))
        stale_.push_back(event);
    check_captured(step, queue);
    const int seen = static_cast<int>(history_.size());
    history_.push_back({program_, index});
    const Clocks::Node node = clocks_.issue(queue);
    check_communication(step, {node, seen});
    touch(step, {node, seen});
    if (step.records >= 0) clocks_.record(queue, event_of(step.records));
  }

  void touch(const Step& step, ByteMap::Access access) {
    if (step.what == Step::What::copy_out || step.what == Step::What::copy_in) {
      read(step, place_at(step.places[0]), access);
      write(step, place_at(step.places[1]), access);
      return;
    }
    if (step.what == Step::What::mark) return;
    const Op& op = current().ops()[static_cast<std::size_t>(step.op)];
    for_each_operand(current(), op, step, [&](const Use& use, int place) {
      if (use.access != Access::write) read(step, place_at(place), access);
    });
    for_each_operand(current(), op, step, [&](const Use& use, int place) {
      if (use.access != Access::read) write(step, place_at(place), access);
    });
  }

  /// True if an event's record comes after a step in host order: its wait sees an older one.
  bool recorded_later(int event, int step) const {
    return recorders_[static_cast<std::size_t>(program_)][static_cast<std::size_t>(event)] > step;
  }

  const Place& place_at(int index) const { return plan().places[static_cast<std::size_t>(index)]; }

  void read(const Step& step, const Place& place, ByteMap::Access access) {
    const std::int64_t content = content_of(program_, place);
    const std::string& tensor = current().info(place.tensor).name;
    std::size_t known = 0;
    bool reported = false;
    bytes_of(place).inspect(
        place.offset, place.end(), [&](std::size_t begin, std::size_t end, const auto& range) {
          known += end - begin;
          if (reported) return;
          if (range.content != content || range.origin != place.offset) {
            fault(
                "{} reads {}, but its bytes hold {} since {}: early reuse or read before its write",
                describe(current(), step), tensor, content_name(range.content),
                describe_seen(range.writer.step));
            reported = true;
          } else if (!clocks_.before(range.writer.node, access.node)) {
            fault("{} reads {} without an edge after its write by {}{}", describe(current(), step),
                  tensor, describe_seen(range.writer.step), stale_note());
            reported = true;
          }
        });
    if (known < place.bytes && !reported)
      fault("{} reads {} before its write", describe(current(), step), tensor);
    bytes_of(place).read(place.offset, place.end(), access);
  }

  void write(const Step& step, const Place& place, ByteMap::Access access) {
    const std::string& tensor = current().info(place.tensor).name;
    bool reported = false;
    const auto check = [&](const ByteMap::Access& earlier, std::int64_t content, const char* does) {
      if (reported || earlier.step == access.step || clocks_.before(earlier.node, access.node))
        return;
      fault("{} writes {} over bytes of {} that {} may still be {}: missing edge{}",
            describe(current(), step), tensor, content_name(content), describe_seen(earlier.step),
            does, stale_note());
      reported = true;
    };
    bytes_of(place).inspect(place.offset, place.end(), [&](auto, auto, const auto& range) {
      check(range.writer, range.content, "writing");
      for (const ByteMap::Access& reader : range.readers) check(reader, range.content, "reading");
    });
    bytes_of(place).write(place.offset, place.end(), content_of(program_, place), access);
  }

  std::string stale_note() const {
    if (stale_.empty()) return {};
    return fmt::format(" (its wait for event {} is launched before the record)",
                       fmt::join(stale_, ", "));
  }

  std::span<const PlannedProgram> programs_;
  std::vector<std::string>& faults_;
  std::map<std::string, int> by_queue_name_;
  std::vector<std::vector<int>> queue_ids_;
  std::vector<int> first_event_;
  std::vector<std::vector<int>> recorders_;  ///< by program and event: the step that records it
  Clocks clocks_;
  ByteMap maps_[kRegions];
  std::map<std::tuple<int, std::string, int>, std::int64_t> contents_;
  std::vector<std::string> content_names_;
  std::vector<Seen> history_;
  std::map<std::string, ByteMap::Access> communicated_;  ///< by group: the last step
  std::vector<int> stale_;
  int program_ = 0;
};

constexpr std::size_t kMostFaults = 32;

}  // namespace

std::vector<std::string> verify(std::span<const PlannedProgram> programs) {
  std::vector<std::string> faults;
  for (const PlannedProgram& planned : programs)
    check_shape(*planned.program, *planned.plan, faults);
  if (faults.empty()) {
    Proof proof(programs, faults);
    for (int p = 0; p < static_cast<int>(programs.size()) && faults.size() < kMostFaults; ++p) {
      proof.issue(p);
      proof.issue(p);
    }
    if (programs.size() > 1 && faults.size() < kMostFaults) proof.issue(0);
  }
  if (faults.size() > kMostFaults) faults.resize(kMostFaults);
  return faults;
}

void require_proven(std::span<const PlannedProgram> programs) {
  const std::vector<std::string> faults = verify(programs);
  if (faults.empty()) return;
  throw Error(Exit::runtime,
              fmt::format("the plan of program {} is not safe to run:\n  {}",
                          programs.front().program->name(), fmt::join(faults, "\n  ")));
}

}  // namespace stowage::execution
