#include "offload/planner.hpp"

#include <vector>

#include "offload/edges.hpp"
#include "offload/lifetimes.hpp"
#include "offload/packing.hpp"

namespace stowage::offload {
namespace {

using execution::align_up;
using execution::Lane;
using execution::Place;
using execution::Plan;
using execution::Program;
using execution::Region;
using execution::Step;
using execution::Tensor;

const char* queue_name(Lane lane) {
  switch (lane) {
    case Lane::compute:
      return "compute";
    case Lane::comm:
      return "comm";
    case Lane::d2h:
      return "d2h";
    case Lane::h2d:
      return "h2d";
  }
  return "?";
}

/// Queue 0 is compute; every other lane that the program uses gets one queue.
std::vector<int> choose_queues(const Program& program, Plan& plan) {
  std::vector<int> by_lane(4, -1);
  const auto need = [&](Lane lane) {
    int& queue = by_lane[static_cast<std::size_t>(lane)];
    if (queue >= 0) return;
    queue = static_cast<int>(plan.queues.size());
    plan.queues.push_back({queue_name(lane), lane});
  };
  need(Lane::compute);
  for (const execution::Op& op : program.ops()) need(op.lane);
  return by_lane;
}

/// One place for each buffer of each tensor that is used; persistent ones where the layout says.
class Placement {
 public:
  Placement(const Program& program, const execution::PersistentLayout& layout, Plan& plan)
      : program_(program), layout_(layout), plan_(plan), first_(program.tensors().size(), -1) {}

  int first_place(Tensor tensor) {
    int& first = first_[static_cast<std::size_t>(tensor.id)];
    if (first >= 0) return first;
    first = static_cast<int>(plan_.places.size());
    const execution::TensorInfo& info = program_.info(tensor);
    for (std::size_t b = 0; b < info.buffers.size(); ++b) {
      Place place{tensor, static_cast<int>(b), Region::transient, 0, info.buffers[b].bytes()};
      if (is_persistent(info.lifetime)) {
        place.region = Region::persistent;
        place.offset = layout_.place(info.name).offset;
      }
      plan_.places.push_back(place);
    }
    return first;
  }

 private:
  const Program& program_;
  const execution::PersistentLayout& layout_;
  Plan& plan_;
  std::vector<int> first_;
};

void place_transients(Plan& plan, std::size_t alignment) {
  const std::vector<LiveRange> ranges = live_ranges(plan);
  std::vector<Block> blocks;
  for (const LiveRange& range : ranges) {
    const Place& place = plan.places[static_cast<std::size_t>(range.place)];
    blocks.push_back({range.begin, range.end, align_up(place.bytes, alignment)});
  }
  const Packing packing = pack(blocks);
  for (std::size_t i = 0; i < ranges.size(); ++i)
    plan.places[static_cast<std::size_t>(ranges[i].place)].offset = packing.offsets[i];
  plan.bytes[static_cast<int>(Region::transient)] = packing.bytes;
  plan.live_bytes = packing.bound;
}

}  // namespace

Plan plan_keep(const Program& program, const execution::PersistentLayout& layout,
               const PlannerOptions& options) {
  Plan plan;
  plan.decisions.assign(program.tensors().size(), execution::Decision::keep);
  plan.bytes[static_cast<int>(Region::persistent)] = layout.bytes();
  const std::vector<int> queue_of = choose_queues(program, plan);
  Placement placement(program, layout, plan);
  for (const execution::Section& section : program.sections()) {
    plan.sections.push_back({section.begin, section.end, section.repeat});
    for (int i = section.begin; i < section.end; ++i) {
      const execution::Op& op = program.ops()[static_cast<std::size_t>(i)];
      Step step;
      step.op = i;
      step.queue = queue_of[static_cast<std::size_t>(op.lane)];
      for (const execution::Use& use : op.uses) {
        const int first = placement.first_place(use.tensor);
        for (std::size_t b = 0; b < program.info(use.tensor).buffers.size(); ++b)
          step.places.push_back(first + static_cast<int>(b));
      }
      plan.steps.push_back(std::move(step));
    }
  }
  place_transients(plan, options.alignment);
  add_edges(program, plan);
  return plan;
}

}  // namespace stowage::offload
