#include "execution/verifier.hpp"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <utility>

#include "execution/byte_map.hpp"
#include "execution/clocks.hpp"
#include "execution/contents.hpp"
#include "execution/copy_watch.hpp"
#include "execution/error.hpp"
#include "execution/plan_shape.hpp"
#include "execution/versions.hpp"

namespace stowage::execution {
namespace {

/// What bytes hold: a whole buffer's number above, which of its values below.
constexpr int kVersionBits = 32;

std::int64_t held(int content, std::int64_t version) {
  return (static_cast<std::int64_t>(content) << kVersionBits) + version;
}
int content_of(std::int64_t held) { return static_cast<int>(held >> kVersionBits); }

std::vector<const Program*> programs_of(std::span<const PlannedProgram> planned) {
  std::vector<const Program*> programs;
  for (const PlannedProgram& one : planned) programs.push_back(one.program);
  return programs;
}

/// Follows the bytes of all regions and the order of all queues while programs are issued.
class Proof {
 public:
  Proof(std::span<const PlannedProgram> planned, std::vector<std::string>& faults)
      : planned_(planned),
        programs_(programs_of(planned)),
        faults_(faults),
        clocks_(count_queues(), count_events()),
        contents_(programs_),
        versions_(programs_, contents_) {
    for (int p = 0; p < static_cast<int>(planned_.size()); ++p) place_persistent(p);
  }

  void issue(int program) {
    program_ = program;
    versions_.execute(program);
    const Segment* segment = nullptr;
    const int join = first_carried(plan()) - 1;
    std::vector<Clocks::Node> latest = latest_of_queues();  // when the join is issued
    for_each_issued(plan(), 2, [&](int step, int, int repetition) {
      repetition_ = repetition;
      if (segment == nullptr) segment = launch_at(step);
      issue_step(step);
      if (segment != nullptr && segment->end == step + 1) {
        end_launch(*segment);
        segment = nullptr;
      }
      if (step == join) latest = latest_of_queues();
    });
    for (int q = 0; q < static_cast<int>(plan().queues.size()); ++q)
      if (!clocks_.before(latest[q], queue_of(0)))
        fault("queue {} is not joined at the end of program {}", plan().queues[q].name,
              current().name());
    check_homes();
  }

  /// Another program comes next: its queue 0 follows all that is carried (Device::take_turn).
  void settle(int program) {
    program_ = program;
    for (int q = 0; q < static_cast<int>(by_queue_name_.size()); ++q) {
      clocks_.record(q, settled_);
      clocks_.wait(queue_of(0), settled_);
    }
  }

 private:
  struct Seen {
    int program;
    int step;
  };

  const Program& current() const { return *planned_[program_].program; }
  const Plan& plan() const { return *planned_[program_].plan; }

  template <class... Args>
  void fault(fmt::format_string<Args...> format, Args&&... args) {
    faults_.push_back(fmt::format(format, std::forward<Args>(args)...));
  }

  int count_queues() {
    for (const PlannedProgram& planned : planned_) {
      auto& ids = queue_ids_.emplace_back();
      for (const QueueInfo& queue : planned.plan->queues)
        ids.push_back(by_queue_name_.emplace(queue.name, static_cast<int>(by_queue_name_.size()))
                          .first->second);
    }
    return static_cast<int>(by_queue_name_.size());
  }

  int count_events() {
    int events = 0;
    for (const PlannedProgram& planned : planned_) {
      recorders_.push_back(recorders(*planned.plan));
      first_event_.push_back(events);
      events += planned.plan->events;
    }
    settled_ = events;
    return events + 1;
  }

  std::vector<Clocks::Node> latest_of_queues() {
    std::vector<Clocks::Node> latest;
    for (int q = 0; q < static_cast<int>(plan().queues.size()); ++q)
      latest.push_back(clocks_.latest(queue_of(q)));
    return latest;
  }

  int queue_of(int plan_queue) const { return queue_ids_[program_][plan_queue]; }
  int event_of(int plan_event) const { return first_event_[program_] + plan_event; }

  /// The whole buffer that a place's bytes belong to.
  int content_at(const Place& place) const {
    return contents_.of(program_, place.tensor, place.buffer);
  }
  const std::string& name_held(std::int64_t held) const { return contents_.name(content_of(held)); }

  /// Parameters and optimizer states hold their values before the first step. Of gradients on the
  /// host a window may be loaded before their first write, which no op reads (touch()); where those
  /// on the device are, others may lie.
  void place_persistent(int program) {
    program_ = program;
    for (std::size_t p = 0; p < plan().places.size(); ++p) {
      const Place& place = plan().places[p];
      if (place.region == Region::transient ||
          !is_persistent(current().info(place.tensor).lifetime))
        continue;
      const std::int64_t initial = held(content_at(place), 0);
      const std::size_t origin = origin_of(current(), place);
      map_of(place).inspect(place.offset, place.end(), [&](auto, auto, const auto& range) {
        if (range.content != initial || range.origin != origin)
          fault("persistent tensors {} and {} share bytes", current().info(place.tensor).name,
                name_held(range.content));
      });
      if (place.region == Region::host ||
          current().info(place.tensor).lifetime != Lifetime::gradient)
        map_of(place).write(place.offset, place.end(), initial, {}, origin);
    }
  }

  ByteMap& map_of(const Place& place) { return maps_[static_cast<int>(place.region)]; }

  std::string describe_seen(int seen) const {
    if (seen < 0) return "the initial state";
    const Seen& s = history_[seen];
    const PlannedProgram& planned = planned_[s.program];
    return describe(*planned.program, planned.plan->steps[s.step]);
  }

  /// What has its home on the host is back there when a program ends, whoever reads it next.
  void check_homes() {
    for (const Place& place : plan().places) {
      if (place.region != Region::host || !is_persistent(current().info(place.tensor).lifetime))
        continue;
      bool whole = true;
      const auto values =
          versions_.now(program_, place.tensor, {place.first, place.first + place.bytes});
      for_each_value(values, place, [&](Bytes bytes, std::int64_t held) {
        map_of(place).inspect(bytes.begin, bytes.end, [&](auto, auto, const auto& range) {
          whole = whole && range.content == held;
        });
      });
      if (!whole)
        fault("{} is not back in its home on the host at the end of program {}",
              current().info(place.tensor).name, current().name());
    }
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
              plan().queues[q].name);
    clocks_.end_launch();
  }

  /// Ranks match the communication of a group by its order, so it has one on every rank.
  void check_communication(const Step& step, ByteMap::Access access) {
    if (step.what != Step::What::run) return;
    const auto& communication = current().ops()[step.op].communication;
    if (!communication) return;
    ByteMap::Access& last = communicated_[communication->group];
    if (!clocks_.before(last.node, access.node))
      fault("{} may overtake {} in group {}: missing edge{}", describe(current(), step),
            describe_seen(last.step), communication->group, stale_note());
    last = access;
  }

  /// Ops of compute share what libraries keep for them, and the machine: they run one by one,
  /// however many queues launch them.
  void check_compute(const Step& step, ByteMap::Access access) {
    if (step.what != Step::What::run && step.what != Step::What::rerun) return;
    if (plan().queues[step.queue].lane != Lane::compute) return;
    if (!clocks_.before(computed_.node, access.node))
      fault("{} may run beside {}: missing edge{}", describe(current(), step),
            describe_seen(computed_.step), stale_note());
    computed_ = access;
  }

  /// A step of a graph is captured only if its queue is in the capture.
  void check_captured(const Step& step, int queue) {
    if (!clocks_.launching() || clocks_.forked(queue)) return;
    fault("{} is not forked from its graph: on queue {} it would run at the capture",
          describe(current(), step), plan().queues[step.queue].name);
  }

  void issue_step(int index) {
    const Step& step = plan().steps[index];
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
    check_compute(step, {node, seen});
    watch_copies(step, {node, seen});
    if (step.records >= 0) clocks_.record(queue, event_of(step.records));
  }

  void touch(const Step& step, ByteMap::Access access) {
    if (step.what == Step::What::mark) return;
    if (is_copy(step)) {
      if (counts_rows(step)) read_as_it_is(step, place_at(step.places[2]), access);
      return copy(step, place_at(step.places[0]), place_at(step.places[1]), access);
    }
    const auto for_each_place = [&](auto&& visit) {
      std::size_t next = 0;
      for_each_operand(current(), current().ops()[step.op], step, [&](const Use& use, int place) {
        visit(use.access, next++, place_at(place));
      });
    };
    for_each_place([&](Access how, std::size_t operand, const Place& place) {
      if (how == Access::write) return;
      const std::int64_t never_written = held(content_at(place), 0);
      const bool holds_none = current().info(place.tensor).lifetime == Lifetime::gradient;
      for_each_value(versions_.read(step.op, operand, repetition_), place,
                     [&](Bytes bytes, std::int64_t held) {
                       if (holds_none && held == never_written)
                         fault_of_no_write(step, place);
                       else
                         read(step, place, bytes, held, access);
                     });
    });
    for_each_place([&](Access how, std::size_t operand, const Place& place) {
      if (how == Access::read) return;
      for_each_value(
          versions_.written(step.op, operand, repetition_), place,
          [&](Bytes bytes, std::int64_t held) { write(step, place, bytes, held, access); });
    });
    for_each_place([&](Access how, std::size_t operand, const Place& place) {
      bool reported = false;
      for_each_value(how == Access::read ? versions_.read(step.op, operand, repetition_)
                                         : versions_.written(step.op, operand, repetition_),
                     place, [&](Bytes bytes, std::int64_t held) {
                       if (!reported) reported = lies_under(step, place, bytes, held, access);
                     });
    });
  }

  /// An operand of an op lies in no bytes that the op writes as another one.
  bool lies_under(const Step& step, const Place& place, Bytes bytes, std::int64_t held,
                  ByteMap::Access access) {
    std::int64_t other = held;
    map_of(place).inspect(bytes.begin, bytes.end, [&](auto, auto, const auto& range) {
      if (range.writer.step == access.step && content_of(range.content) != content_of(held))
        other = range.content;
    });
    if (other != held)
      fault("{} writes {} into the bytes of {}, another of its operands", describe(current(), step),
            name_held(other), current().info(place.tensor).name);
    return other != held;
  }

  /// Calls `visit(bytes of the place's region, what they should hold)`.
  template <class Visit>
  void for_each_value(std::span<const Versions::Value> values, const Place& place, Visit&& visit) {
    const int content = content_at(place);
    const std::size_t origin = origin_of(current(), place);
    for (const Versions::Value& value : values)
      visit({origin + value.begin, origin + value.end}, held(content, value.version));
  }

  /// Reads what lies at a place as it is; if something else lies there, the read says so.
  std::vector<std::pair<Bytes, std::int64_t>> read_as_it_is(const Step& step, const Place& place,
                                                            ByteMap::Access access) {
    const int content = content_at(place);
    std::vector<std::pair<Bytes, std::int64_t>> parts;
    map_of(place).inspect(place.offset, place.end(),
                          [&](std::size_t begin, std::size_t end, const auto& range) {
                            if (content_of(range.content) == content)
                              parts.push_back({{begin, end}, range.content});
                          });
    std::size_t known = 0;
    for (const auto& [bytes, value] : parts) known += bytes.end - bytes.begin;
    if (known < place.bytes) parts = {{{place.offset, place.end()}, held(content, 0)}};
    for (const auto& [bytes, value] : parts) read(step, place, bytes, value, access);
    return parts;
  }

  void copy(const Step& step, const Place& from, const Place& to, ByteMap::Access access) {
    for (const auto& [bytes, value] : read_as_it_is(step, from, access))
      write(step, to, {bytes.begin - from.offset + to.offset, bytes.end - from.offset + to.offset},
            value, access);
  }

  /// Caps are checked where a copy from the host is issued, and where compute goes on.
  void watch_copies(const Step& step, ByteMap::Access access) {
    const CopyCaps& caps = plan().caps;
    if (caps.max_inflight < 0 && caps.d2h_bytes < 0 && caps.h2d_bytes < 0) return;
    std::string wrong;
    if (is_copy(step)) {
      const Place& place = place_at(step.places[0]);
      if (step.what == Step::What::copy_out)
        copies_.left(access.node, current().info(place.tensor).module, place.bytes);
      else
        wrong = copies_.came_back(clocks_, caps, access.node, place.bytes);
    } else if (plan().queues[step.queue].lane == Lane::compute) {
      wrong = copies_.computed(clocks_, caps, access.node, step.what != Step::What::mark);
    }
    if (!wrong.empty()) fault("{}: {}", describe(current(), step), wrong);
  }

  /// True if an event's record comes after a step in host order: its wait sees an older one.
  bool recorded_later(int event, int step) const { return recorders_[program_][event] > step; }

  const Place& place_at(int index) const { return plan().places[index]; }

  void fault_of_no_write(const Step& step, const Place& place) {
    fault("{} reads {} before its write", describe(current(), step),
          current().info(place.tensor).name);
  }

  void read(const Step& step, const Place& place, Bytes bytes, std::int64_t wanted,
            ByteMap::Access access) {
    const std::string& tensor = current().info(place.tensor).name;
    const std::size_t origin = origin_of(current(), place);
    std::size_t known = 0;
    bool reported = false;
    map_of(place).inspect(
        bytes.begin, bytes.end, [&](std::size_t begin, std::size_t end, const auto& range) {
          known += end - begin;
          if (reported) return;
          const bool same =
              content_of(range.content) == content_of(wanted) && range.origin == origin;
          if (same && range.content != wanted) {
            fault("{} reads {} as {} left it: not the value that program order gives it",
                  describe(current(), step), tensor, describe_seen(range.writer.step));
            reported = true;
          } else if (!same) {
            fault(
                "{} reads {}, but its bytes hold {} since {}: early reuse or read before its write",
                describe(current(), step), tensor, name_held(range.content),
                describe_seen(range.writer.step));
            reported = true;
          } else if (!clocks_.before(range.writer.node, access.node)) {
            fault("{} reads {} without an edge after its write by {}{}", describe(current(), step),
                  tensor, describe_seen(range.writer.step), stale_note());
            reported = true;
          }
        });
    if (known < bytes.end - bytes.begin && !reported) fault_of_no_write(step, place);
    map_of(place).read(bytes.begin, bytes.end, access);
  }

  void write(const Step& step, const Place& place, Bytes bytes, std::int64_t value,
             ByteMap::Access access) {
    const std::string& tensor = current().info(place.tensor).name;
    bool reported = false;
    const auto check = [&](const ByteMap::Access& earlier, std::int64_t old, const char* does) {
      if (reported || earlier.step == access.step || clocks_.before(earlier.node, access.node))
        return;
      fault("{} writes {} over bytes of {} that {} may still be {}: missing edge{}",
            describe(current(), step), tensor, name_held(old), describe_seen(earlier.step), does,
            stale_note());
      reported = true;
    };
    map_of(place).inspect(bytes.begin, bytes.end, [&](auto, auto, const auto& range) {
      check(range.writer, range.content, "writing");
      for (const ByteMap::Access& reader : range.readers) check(reader, range.content, "reading");
    });
    map_of(place).write(bytes.begin, bytes.end, value, access, origin_of(current(), place));
  }

  std::string stale_note() const {
    if (stale_.empty()) return {};
    return fmt::format(" (its wait for event {} is launched before the record)",
                       fmt::join(stale_, ", "));
  }

  std::span<const PlannedProgram> planned_;
  std::vector<const Program*> programs_;
  std::vector<std::string>& faults_;
  std::map<std::string, int> by_queue_name_;
  std::vector<std::vector<int>> queue_ids_;
  std::vector<int> first_event_;
  std::vector<std::vector<int>> recorders_;  ///< by program and event: the step that records it
  int settled_ = 0;  ///< the event of settle(), behind those of all programs
  Clocks clocks_;
  Contents contents_;
  Versions versions_;
  ByteMap maps_[kRegions];
  CopyWatch copies_;
  std::vector<Seen> history_;
  std::map<std::string, ByteMap::Access> communicated_;  ///< by group: the last step
  ByteMap::Access computed_;                             ///< the last op of compute
  std::vector<int> stale_;
  int program_ = 0;
  int repetition_ = 0;
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
      if (p > 0) proof.settle(p);
      proof.issue(p);
      proof.issue(p);
    }
    if (programs.size() > 1 && faults.size() < kMostFaults) {
      proof.settle(0);
      proof.issue(0);
    }
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
