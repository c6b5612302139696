#include "parallel/groups/grid.hpp"

#include <limits>

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
    {"experts", {Axis::tensor, Axis::expert}},
    {"dense_gradients", {Axis::context, Axis::expert, Axis::data}},
    {"expert_gradients", {Axis::context, Axis::data}},
    {"replicated_gradients", {Axis::tensor, Axis::context, Axis::expert, Axis::data}},
    {"model", {Axis::tensor, Axis::expert, Axis::pipeline}},
}};

const GroupInfo& info(Group group) { return kGroupInfos[static_cast<std::size_t>(group)]; }

}  // namespace

std::string_view name(Axis axis) {
  constexpr std::array<std::string_view, kAxes> kNames = {"tensor", "context", "expert", "pipeline",
                                                          "data"};
  return kNames[static_cast<std::size_t>(axis)];
}

int GridShape::ranks() const {
  double product = 1;  // of five ints: it cannot overflow
  for (const int extent_of_axis : extent.value) product *= extent_of_axis;
  constexpr int kMost = std::numeric_limits<int>::max();
  if (product > kMost)
    execution::throw_usage("{} is a grid of {:.4g} ranks; allowed: at most {}", describe(), product,
                           kMost);
  return static_cast<int>(product);
}

std::string GridShape::describe() const {
  std::string text;
  for (const Axis axis : kAllAxes) {
    if (extent[axis] == 1) continue;
    text += fmt::format("{}{} {}", text.empty() ? "" : " x ", name(axis), extent[axis]);
  }
  return text.empty() ? "1 rank" : text;
}

GridShape fit_grid(int ranks, int tensor, int context, int expert, int pipeline) {
  GridShape shape{{{tensor, context, expert, pipeline, 1}}};
  for (const Axis axis : kAllAxes) {
    if (shape[axis] < 1)
      execution::throw_usage("the {} axis has {} ranks, at least 1 is needed", name(axis),
                             shape[axis]);
  }
  if (ranks % shape.ranks() != 0)
    execution::throw_usage("{} ranks were started, a multiple of {} is needed for {}", ranks,
                           shape.ranks(), shape.describe());
  shape.extent[Axis::data] = ranks / shape.ranks();
  return shape;
}

PerAxis coordinates(const GridShape& shape, int rank) {
  PerAxis result;
  for (const Axis axis : kAllAxes) {
    result[axis] = rank % shape[axis];
    rank /= shape[axis];
  }
  return result;
}

int rank_at(const GridShape& shape, const PerAxis& coordinates) {
  int rank = 0;
  for (std::size_t i = kAxes; i-- > 0;) rank = rank * shape.extent.value[i] + coordinates.value[i];
  return rank;
}

SequencePart sequence_part(const GridShape& shape, int rank) {
  const PerAxis at = coordinates(shape, rank);
  return {at[Axis::expert] + shape[Axis::expert] * at[Axis::data],
          shape[Axis::expert] * shape[Axis::data]};
}

std::vector<int> members(const GridShape& shape, int rank, AxisSet axes) {
  PerAxis first = coordinates(shape, rank);
  for (const Axis axis : kAllAxes)
    if (axes.has(axis)) first[axis] = 0;
  std::vector<int> result{rank_at(shape, first)};
  int stride = 1;
  for (const Axis axis : kAllAxes) {  // the slowest last, so that they come out ascending
    const std::size_t before = result.size();
    for (int i = 1; axes.has(axis) && i < shape[axis]; ++i)
      for (std::size_t j = 0; j < before; ++j) result.push_back(result[j] + i * stride);
    stride *= shape[axis];
  }
  return result;
}

std::string_view name(Group group) { return info(group).name; }

std::optional<Group> group_named(std::string_view name) {
  for (std::size_t which = 0; which < kGroups; ++which)
    if (const auto group = static_cast<Group>(which); parallel::name(group) == name) return group;
  return std::nullopt;
}

AxisSet axes(Group group) { return info(group).axes; }

int group_size(const GridShape& shape, Group group) {
  int size = 1;
  for (const Axis axis : kAllAxes)
    if (axes(group).has(axis)) size *= shape[axis];
  return size;
}

Group gradient_group(std::string_view bucket_group) {
  if (bucket_group == "dense") return Group::dense_gradients;
  if (bucket_group == "expert") return Group::expert_gradients;
  if (bucket_group == "replicated") return Group::replicated_gradients;
  throw execution::Error(execution::Exit::runtime,
                         fmt::format("no reduction group is called '{}'", bucket_group));
}

}  // namespace stowage::parallel
