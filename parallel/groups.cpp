#include "parallel/groups.hpp"

#include "execution/error.hpp"

namespace stowage::parallel {
namespace {

struct GroupInfo {
  std::string_view name;
  AxisSet axes;
};

/// By Group.
constexpr std::array<GroupInfo, kGroups> kGroupInfos = {{
    {"world", {Axis::tensor, Axis::context, Axis::expert, Axis::pipeline, Axis::data}},
    {"tensor", {Axis::tensor}},
    {"context", {Axis::context}},
    {"expert", {Axis::expert}},
    {"pipeline", {Axis::pipeline}},
    {"data", {Axis::data}},
    {"dense_gradients", {Axis::context, Axis::expert, Axis::data}},
    {"expert_gradients", {Axis::context, Axis::data}},
    {"model", {Axis::tensor, Axis::expert, Axis::pipeline}},
}};

const GroupInfo& info(Group group) { return kGroupInfos[static_cast<std::size_t>(group)]; }

}  // namespace

std::string_view name(Group group) { return info(group).name; }

AxisSet axes(Group group) { return info(group).axes; }

Group gradient_group(std::string_view bucket_group) {
  if (bucket_group == "dense") return Group::dense_gradients;
  if (bucket_group == "expert") return Group::expert_gradients;
  throw execution::Error(execution::Exit::runtime,
                         fmt::format("no reduction group is called '{}'", bucket_group));
}

ProcessGrid::ProcessGrid(const Communicator& world, const GridShape& shape)
    : shape_(shape), coordinates_(parallel::coordinates(shape, world.rank())) {
  STOWAGE_ASSERT(world.size() == shape.ranks(), "a grid of {} ranks ({}) on {}", shape.ranks(),
                 shape.describe(), world.size());
  groups_.reserve(kGroups);
  for (const GroupInfo& group : kGroupInfos) {
    // The lowest member names the group: the same for its members, another for all others.
    const int color = members(shape, world.rank(), group.axes).front();
    groups_.push_back(world.split(color, world.rank()));
  }
}

}  // namespace stowage::parallel
