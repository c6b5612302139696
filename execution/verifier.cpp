#include "execution/verifier.hpp"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <utility>

#include "execution/byte_map.hpp"
#include "execution/clocks.hpp"
#include "execution/copy_watch.hpp"
#include "execution/error.hpp"
#include "execution/plan_shape.hpp"
#include "execution/versions.hpp"

namespace stowage::execution {
namespace {

/// What bytes hold: a buffer's identity above, which of its values below.
constexpr int kVersionBits = 32;

/// Follows the bytes of all regions and the order of all queues while programs are issued.
class Proof {
 public:
  Proof(std::span<const PlannedProgram> programs, std::vector<std::string>& faults)
      : programs_(programs), faults_(faults), clocks_(count_queues(), count_events()) {
    for (std::size_t p = 0; p < programs_.size(); ++p) {
      versions_.emplace_back(*programs_[p].program);
      find_contents(static_cast<int>(p));
      place_persistent(static_cast<int>(p));
    }
  }

  void issue(int program) {
    program_ = program;
    const Segment* segment = nullptr;
    for_each_issued(plan(), 2, [&](int step, int, int repetition) {
      repetition_ = repetition;
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
    end_of_step();
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

  /// The buffers that the places of a program belong to. A persistent tensor is the same in every
  /// program; any other is its program's own.
  void find_contents(int program) {
    const PlannedProgram& planned = programs_[static_cast<std::size_t>(program)];
    std::vector<std::int64_t>& contents = contents_of_places_.emplace_back();
    for (const Place& place : planned.plan->places) {
      const TensorInfo& info = planned.program->info(place.tensor);
      const int scope = is_persistent(info.lifetime) ? -1 : program;
      const auto [found, added] =
          contents_.emplace(std::tuple(scope, info.name, place.buffer),
                            static_cast<std::int64_t>(contents_.size()) << kVersionBits);
      if (added) {
        content_names_.push_back(info.name);
        base_.push_back(0);
      }
      contents.push_back(found->second);
    }
  }
  static std::size_t buffer_of(std::int64_t content) {
    return static_cast<std::size_t>(content >> kVersionBits);
  }
  std::int64_t content_of(int place) const {
    return contents_of_places_[static_cast<std::size_t>(program_)][static_cast<std::size_t>(place)];
  }
  /// A buffer's content after so many writes in this execution of its program.
  std::int64_t content_after(int place, std::int64_t writes) const {
    const std::int64_t content = content_of(place);
    return content + base_[buffer_of(content)] + writes;
  }
  const std::string& content_name(std::int64_t content) const {
    return content_names_[buffer_of(content)];
  }

  /// The next execution goes on from the values that this one leaves.
  void end_of_step() {
    std::vector<char> done(base_.size(), 0);
    for (std::size_t p = 0; p < plan().places.size(); ++p) {
      const std::size_t buffer = buffer_of(content_of(static_cast<int>(p)));
      if (done[buffer]) continue;
      done[buffer] = 1;
      base_[buffer] +=
          versions_[static_cast<std::size_t>(program_)].writes(plan().places[p].tensor);
    }
  }

  /// Parameters and optimizer states hold their values before the first step.
  void place_persistent(int program) {
    program_ = program;
    for (std::size_t p = 0; p < plan().places.size(); ++p) {
      const Place& place = plan().places[p];
      if (place.region != Region::persistent ||
          !is_persistent(current().info(place.tensor).lifetime))
        continue;
      const std::int64_t content = content_of(static_cast<int>(p));
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

  /// Ops of compute share what libraries keep for them, and the machine: they run one by one,
  /// however many queues launch them.
  void check_compute(const Step& step, ByteMap::Access access) {
    if (step.what != Step::What::run && step.what != Step::What::rerun) return;
    if (plan().queues[static_cast<std::size_t>(step.queue)].lane != Lane::compute) return;
    if (!clocks_.before(computed_.node, access.node))
      fault("{} may run beside {}: missing edge{}", describe(current(), step),
            describe_seen(computed_.step), stale_note());
    computed_ = access;
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
    check_compute(step, {node, seen});
    watch_copies(step, {node, seen});
    if (step.records >= 0) clocks_.record(queue, event_of(step.records));
  }

  void touch(const Step& step, ByteMap::Access access) {
    if (step.what == Step::What::mark) return;
    if (step.what == Step::What::copy_out || step.what == Step::What::copy_in) {
      const std::int64_t content = held(place_at(step.places[0]), content_of(step.places[0]));
      read(step, step.places[0], content, access);
      write(step, step.places[1], content, access);
      return;
    }
    const Versions& versions = versions_[static_cast<std::size_t>(program_)];
    const std::vector<Use>& uses = current().ops()[static_cast<std::size_t>(step.op)].uses;
    const auto for_each_place = [&](auto&& visit) {
      std::size_t next = 0;
      for (std::size_t u = 0; u < uses.size(); ++u)
        for (std::size_t b = 0; b < current().info(uses[u].tensor).buffers.size(); ++b)
          visit(u, step.places[next++]);
    };
    for_each_place([&](std::size_t u, int place) {
      if (uses[u].access != Access::write)
        read(step, place, content_after(place, versions.read(step.op, u, repetition_)), access);
    });
    for_each_place([&](std::size_t u, int place) {
      if (uses[u].access != Access::read)
        write(step, place, content_after(place, versions.written(step.op, u, repetition_)), access);
    });
    write_padding(step, access);
  }

  /// A collective takes the gradients of a bucket as one range, with the padding between them.
  void write_padding(const Step& step, ByteMap::Access access) {
    if (!current().ops()[static_cast<std::size_t>(step.op)].communication) return;
    std::vector<int> gradients;
    for (const int place : step.places)
      if (current().info(place_at(place).tensor).lifetime == Lifetime::gradient)
        gradients.push_back(place);
    std::sort(gradients.begin(), gradients.end(),
              [&](int a, int b) { return place_at(a).offset < place_at(b).offset; });
    for (std::size_t i = 1; i < gradients.size(); ++i)
      if (const std::size_t end = place_at(gradients[i]).offset,
          begin = place_at(gradients[i - 1]).end();
          begin < end)
        write(step, place_at(gradients[i - 1]), begin, end, content_of(gradients[i - 1]), access);
  }

  /// Which value of a buffer lies at a place; `otherwise` if something else does.
  std::int64_t held(const Place& place, std::int64_t otherwise) {
    std::int64_t content = otherwise;
    bytes_of(place).inspect(place.offset, place.end(), [&](auto, auto, const auto& range) {
      if (buffer_of(range.content) == buffer_of(otherwise)) content = range.content;
    });
    return content;
  }

  /// Caps are checked where a copy from the host is issued, and where compute goes on.
  void watch_copies(const Step& step, ByteMap::Access access) {
    const CopyCaps& caps = plan().caps;
    if (caps.max_inflight < 0 && caps.d2h_bytes < 0 && caps.h2d_bytes < 0) return;
    std::string wrong;
    if (step.what == Step::What::copy_out || step.what == Step::What::copy_in) {
      const Place& place = place_at(step.places[0]);
      if (step.what == Step::What::copy_out)
        copies_.left(access.node, current().info(place.tensor).module, place.bytes);
      else
        wrong = copies_.came_back(clocks_, caps, access.node, place.bytes);
    } else if (plan().queues[static_cast<std::size_t>(step.queue)].lane == Lane::compute) {
      wrong = copies_.computed(clocks_, caps, access.node, step.what != Step::What::mark);
    }
    if (!wrong.empty()) fault("{}: {}", describe(current(), step), wrong);
  }

  /// True if an event's record comes after a step in host order: its wait sees an older one.
  bool recorded_later(int event, int step) const {
    return recorders_[static_cast<std::size_t>(program_)][static_cast<std::size_t>(event)] > step;
  }

  const Place& place_at(int index) const { return plan().places[static_cast<std::size_t>(index)]; }

  void read(const Step& step, int at, std::int64_t content, ByteMap::Access access) {
    const Place& place = place_at(at);
    const std::string& tensor = current().info(place.tensor).name;
    std::size_t known = 0;
    bool reported = false;
    bytes_of(place).inspect(
        place.offset, place.end(), [&](std::size_t begin, std::size_t end, const auto& range) {
          known += end - begin;
          if (reported) return;
          const bool same = buffer_of(range.content) == buffer_of(content);
          if (same && range.origin == place.offset && range.content != content) {
            fault("{} reads {} as {} left it: not the value that program order gives it",
                  describe(current(), step), tensor, describe_seen(range.writer.step));
            reported = true;
          } else if (!same || range.origin != place.offset) {
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

  void write(const Step& step, int at, std::int64_t content, ByteMap::Access access) {
    const Place& place = place_at(at);
    write(step, place, place.offset, place.end(), content, access);
  }

  /// @param place of the tensor that is written, in whose region the bytes are
  void write(const Step& step, const Place& place, std::size_t begin, std::size_t end,
             std::int64_t content, ByteMap::Access access) {
    const std::string& tensor = current().info(place.tensor).name;
    bool reported = false;
    const auto check = [&](const ByteMap::Access& earlier, std::int64_t old, const char* does) {
      if (reported || earlier.step == access.step || clocks_.before(earlier.node, access.node))
        return;
      fault("{} writes {} over bytes of {} that {} may still be {}: missing edge{}",
            describe(current(), step), tensor, content_name(old), describe_seen(earlier.step), does,
            stale_note());
      reported = true;
    };
    bytes_of(place).inspect(begin, end, [&](auto, auto, const auto& range) {
      check(range.writer, range.content, "writing");
      for (const ByteMap::Access& reader : range.readers) check(reader, range.content, "reading");
    });
    bytes_of(place).write(begin, end, content, access);
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
  std::vector<Versions> versions_;  ///< by program
  std::map<std::tuple<int, std::string, int>, std::int64_t> contents_;
  std::vector<std::vector<std::int64_t>> contents_of_places_;  ///< by program and place
  std::vector<std::string> content_names_;
  std::vector<std::int64_t> base_;  ///< by buffer: writes before this execution
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
