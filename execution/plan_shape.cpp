#include "execution/plan_shape.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <map>
#include <set>
#include <utility>

#include "execution/contents.hpp"

namespace stowage::execution {
namespace {

class ShapeCheck {
 public:
  ShapeCheck(const Program& program, const Plan& plan, std::vector<std::string>& faults)
      : program_(program), plan_(plan), faults_(faults) {}

  void run() {
    find_persistent();
    for (std::size_t i = 0; i < plan_.places.size(); ++i) check_place(plan_.places[i]);
    if (!faults_.empty()) return;
    check_sections();
    for (const Step& step : plan_.steps) check_step(step);
    if (!faults_.empty()) return;
    check_carried();
    check_records();
    for (std::size_t i = 0; i < plan_.segments.size(); ++i) check_segment(i);
  }

 private:
  template <class... Args>
  void fault(fmt::format_string<Args...> format, Args&&... args) {
    faults_.push_back(fmt::format(format, std::forward<Args>(args)...));
  }

  bool known(Tensor tensor) const {
    return tensor && tensor.id < static_cast<int>(program_.tensors().size());
  }

  void check_place(const Place& place) {
    if (!known(place.tensor)) return fault("a place belongs to no tensor ({})", place.tensor.id);
    const TensorInfo& info = program_.info(place.tensor);
    if (place.buffer < 0 || place.buffer >= static_cast<int>(info.buffers.size()))
      return fault("a place of {} is for buffer {}", info.name, place.buffer);
    const std::size_t bytes = info.buffers[place.buffer].bytes();
    const bool away = has_home_on_host(place.tensor);
    const bool is_range = place.first < bytes && place.bytes <= bytes - place.first;
    if (away ? !is_range : place.first != 0 || place.bytes != bytes)
      fault("a place of {} has {} bytes, its buffer has {}", info.name, place.bytes, bytes);
    if (place.offset % kAlignment != 0)
      fault("{} lies at offset {}, no multiple of {}", info.name, place.offset, kAlignment);
    if (place.end() > plan_.bytes[static_cast<int>(place.region)])
      fault("{} ends at byte {} of the {} region, which has {}", info.name, place.end(),
            name(place.region), plan_.bytes[static_cast<int>(place.region)]);
    if (!away && place.region == Region::host && place.offset < end_of_homes_)
      fault("{} lies in the bytes of homes on the host", info.name);
    const bool tenant = place.region == Region::persistent &&
                        (info.lifetime == Lifetime::saved || info.lifetime == Lifetime::scratch);
    if (tenant) return check_tenant(place);
    if (away && place.region == Region::persistent)
      fault("{} tensor {} lies in the persistent region, but its home is the host",
            name(info.lifetime), info.name);
    if (!away && is_persistent(info.lifetime) != (place.region == Region::persistent))
      fault("{} tensor {} lies in the {} region", name(info.lifetime), info.name,
            name(place.region));
  }

  bool has_home_on_host(Tensor tensor) const { return homes_on_host_.contains(tensor.id); }

  /// Bytes of what outlives a step, and of gradients, which do not hold anything between steps.
  void find_persistent() {
    for (const Place& place : plan_.places) {
      if (!known(place.tensor)) continue;
      const Lifetime lifetime = program_.info(place.tensor).lifetime;
      if (place.region == Region::host && is_persistent(lifetime)) {
        homes_on_host_.insert(place.tensor.id);
        end_of_homes_ = std::max(end_of_homes_, place.end());
      }
      if (place.region != Region::persistent) continue;
      if (lifetime == Lifetime::gradient) {
        gradients_.begin = std::min(gradients_.begin, place.offset);
        gradients_.end = std::max(gradients_.end, place.end());
      } else if (is_persistent(lifetime)) {
        outliving_.emplace(place.offset, &place);
      }
    }
  }

  /// What is kept until backward may lie among gradients. That it makes room in time is proved as
  /// for any bytes.
  void check_tenant(const Place& tenant) {
    const std::string& name = program_.info(tenant.tensor).name;
    if (tenant.offset < gradients_.begin || tenant.end() > gradients_.end)
      fault("{} lies in the persistent region, but not among gradients", name);
    const auto next = outliving_.lower_bound(tenant.end());
    if (next == outliving_.begin()) return;
    if (const Place& other = *std::prev(next)->second; other.end() > tenant.offset)
      fault("{} lies on {}, which outlives a step", name, program_.info(other.tensor).name);
  }

  void check_sections() {
    if (plan_.sections.size() != program_.sections().size())
      return fault("the plan has {} sections, program {} has {}", plan_.sections.size(),
                   program_.name(), program_.sections().size());
    std::vector<int> runs(program_.ops().size(), 0);
    int next = 0;
    for (std::size_t s = 0; s < plan_.sections.size(); ++s) {
      const StepRange& range = plan_.sections[s];
      const Section& section = program_.sections()[s];
      if (range.begin != next || range.repeat != section.repeat)
        fault("section {} does not follow the program", section.name);
      next = range.end;
      for (int i = range.begin; i < range.end; ++i) {
        const Step& step = plan_.steps[i];
        if (step.what != Step::What::run) continue;
        if (step.op < section.begin || step.op >= section.end)
          fault("{} runs in section {}, where it does not belong", describe(program_, step),
                section.name);
        else
          ++runs[step.op];
      }
    }
    if (next != static_cast<int>(plan_.steps.size())) fault("steps lie outside all sections");
    for (std::size_t i = 0; i < runs.size(); ++i)
      if (runs[i] != (program_.ops()[i].only_rerun ? 0 : 1))
        fault("{} runs {} times in its section", program_.ops()[i].name, runs[i]);
  }

  void check_step(const Step& step) {
    const std::string step_name = describe(program_, step);
    if (step.queue < 0 || step.queue >= static_cast<int>(plan_.queues.size()))
      return fault("{} is on queue {}, which does not exist", step_name, step.queue);
    for (const int event : step.waits)
      if (event < 0 || event >= plan_.events)
        fault("{} waits for event {}, which does not exist", step_name, event);
    if (step.records >= plan_.events)
      fault("{} records event {}, which does not exist", step_name, step.records);
    for (const int place : step.places)
      if (place < 0 || place >= static_cast<int>(plan_.places.size()))
        return fault("{} has an operand at place {}, which does not exist", step_name, place);
    switch (step.what) {
      case Step::What::mark:
        return;
      case Step::What::copy_out:
        return check_copy(step, step_name, Region::host);
      case Step::What::copy_in:
        return check_copy(step, step_name, Region::transient);
      case Step::What::run:
      case Step::What::rerun:
        return check_operands(step, step_name);
    }
  }

  void check_carried() {
    for (int i = first_carried(plan_); i < static_cast<int>(plan_.steps.size()); ++i) {
      const Step& step = plan_.steps[i];
      const bool to_home = step.what == Step::What::copy_out &&
                           is_persistent(program_.info(place_at(step.places[1]).tensor).lifetime);
      if (!to_home || plan_.sections.back().repeat > 1)
        fault("{} is behind the join: only copies to homes may be, once a step",
              describe(program_, step));
    }
  }

  void check_records() {
    recorder_ = recorders(plan_);
    for (int i = 0; i < static_cast<int>(plan_.steps.size()); ++i) {
      const Step& step = plan_.steps[i];
      if (step.records < 0) continue;
      const int at = recorder_[step.records];
      if (at != i)
        fault("event {} is recorded by {} and by {}", step.records, describe(program_, step),
              describe(program_, plan_.steps[at]));
    }
  }

  void check_segment(std::size_t index) {
    const Segment& segment = plan_.segments[index];
    const int after = index == 0 ? 0 : plan_.segments[index - 1].end;
    if (segment.begin < after || segment.begin >= segment.end ||
        segment.end > static_cast<int>(plan_.steps.size()))
      return fault("graph {} has steps [{}, {}), the one before it ends at {}", segment.name,
                   segment.begin, segment.end, after);
    if (segment.queue < 0 || segment.queue >= static_cast<int>(plan_.queues.size()))
      return fault("graph {} is launched on queue {}, which does not exist", segment.name,
                   segment.queue);
    if (const QueueInfo& queue = plan_.queues[segment.queue]; queue.lane != Lane::compute)
      return fault("graph {} is launched on queue {}, which is no compute queue", segment.name,
                   queue.name);
    for (const StepRange& range : plan_.sections)
      if (range.repeat > 1 && segment.begin < range.end && segment.end > range.begin &&
          (segment.begin < range.begin || segment.end > range.end))
        fault("graph {} lies only partly in a section that repeats", segment.name);
    check_captured(segment);
  }

  void check_captured(const Segment& segment) {
    for (int i = segment.begin; i < segment.end; ++i) {
      const Step& step = plan_.steps[i];
      if (uses_ring(program_, step))
        fault("{} is in graph {}, but its host address changes from step to step",
              describe(program_, step), segment.name);
      for (const int event : step.waits)
        if (const int at = recorder_[event]; at >= i && at < segment.end)
          fault("{} waits for event {}, which its graph {} records later", describe(program_, step),
                event, segment.name);
    }
  }

  const Place& place_at(int index) const { return plan_.places[index]; }

  /// Whether a window has all of the range that an op uses.
  bool covers(const Place& place, const Use& use) const {
    const Bytes bytes = bytes_of(program_, use, place.buffer);
    return bytes.begin >= place.first && bytes.end <= place.first + place.bytes;
  }

  void check_copy(const Step& step, const std::string& step_name, Region to) {
    if (step.places.size() < 2) return fault("a {} has {} places", step_name, step.places.size());
    const TensorInfo& info = program_.info(place_at(step.places[0]).tensor);
    if (step.places.size() != (info.counts_rows() ? 3 : 2))
      return fault("a {} of {} has {} places", step_name, info.name, step.places.size());
    if (info.counts_rows()) check_count(step, step_name, info);
    const Place& a = place_at(step.places[0]);
    const Place& b = place_at(step.places[1]);
    if (a.tensor != b.tensor || a.buffer != b.buffer || b.region != to || a.first != b.first ||
        a.bytes != b.bytes || (a.region == Region::host) == (to == Region::host))
      fault("a {} is between {} of {} and {} of {}", step_name, name(a.region),
            program_.info(a.tensor).name, name(b.region), program_.info(b.tensor).name);
  }

  void check_count(const Step& step, const std::string& step_name, const TensorInfo& info) {
    const Place& count = place_at(step.places[2]);
    if (count.tensor != info.rows.count || count.region == Region::host)
      fault("a {} of {} counts its rows by {} in the {} region", step_name, info.name,
            program_.info(count.tensor).name, name(count.region));
    const TensorInfo& counted = program_.info(info.rows.count);
    if (counted.buffers.front().dtype != Dtype::int32 || !counted.module.empty())
      fault("{} counts rows, and is no int32 or may move", counted.name);
    const auto writers = std::ranges::count_if(program_.ops(), [&](const Op& op) {
      return std::ranges::any_of(op.uses, [&](const Use& use) {
        return use.tensor == info.rows.count && use.access != Access::read;
      });
    });
    if (writers != 1) fault("{} counts rows, and {} ops write it", counted.name, writers);
  }

  void check_operands(const Step& step, const std::string& step_name) {
    if (step.op < 0 || step.op >= static_cast<int>(program_.ops().size()))
      return fault("a step is of op {}, which does not exist", step.op);
    const Op& op = program_.ops()[step.op];
    if (plan_.queues[step.queue].lane != op.lane)
      fault("{} is on queue {}, of another lane", step_name, plan_.queues[step.queue].name);
    std::size_t next = 0;
    for (const Use& use : op.uses) {
      const TensorInfo& info = program_.info(use.tensor);
      if (step.what == Step::What::rerun && use.access == Access::update)
        fault("{} updates {} in place", step_name, info.name);
      for (std::size_t b = 0; b < info.buffers.size(); ++b, ++next) {
        if (next >= step.places.size()) return fault("{} lacks operands", step_name);
        const Place& place = place_at(step.places[next]);
        if (place.tensor != use.tensor || place.buffer != static_cast<int>(b) ||
            place.region == Region::host || !covers(place, use))
          fault("operand {} of {} is bound to {}", info.name, step_name,
                program_.info(place.tensor).name);
      }
    }
    if (next != step.places.size()) fault("{} has operands too many", step_name);
  }

  const Program& program_;
  const Plan& plan_;
  std::vector<std::string>& faults_;
  std::vector<int> recorder_;                      ///< by event: the step that records it
  std::map<std::size_t, const Place*> outliving_;  ///< what outlives a step, by offset
  std::set<int> homes_on_host_;                    ///< what outlives a step there, by tensor id
  std::size_t end_of_homes_ = 0;                   ///< in the host's region
  struct {
    std::size_t begin = SIZE_MAX, end = 0;
  } gradients_;  ///< from the first to the last of them
};

}  // namespace

bool uses_ring(const Program& program, const Step& step) {
  return step.what == Step::What::run && !program.ops()[step.op].launch;
}

int first_carried(const Plan& plan) {
  const auto steps = static_cast<int>(plan.steps.size());
  int behind = steps;
  while (behind > 0 && plan.steps[behind - 1].queue != 0) --behind;
  if (behind == 0) return steps;
  const Step& join = plan.steps[behind - 1];
  const bool in_graph = std::ranges::any_of(plan.segments, [&](const Segment& segment) {
    return segment.begin < behind && behind <= segment.end;
  });
  return join.what == Step::What::mark && join.places.empty() && !in_graph ? behind : steps;
}

void check_shape(const Program& program, const Plan& plan, std::vector<std::string>& faults) {
  ShapeCheck(program, plan, faults).run();
}

}  // namespace stowage::execution
