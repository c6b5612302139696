#pragma once

#include <array>
#include <cstddef>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

/// The process grid as arithmetic on rank numbers; ranks.hpp makes groups that communicate of it.

namespace stowage::parallel {

/// The axes of the grid, the fastest first: neighbouring ranks, which share a host, differ in the
/// tensor coordinate, whose messages are the largest and the most frequent.
enum class Axis : unsigned char { tensor, context, expert, pipeline, data };
inline constexpr std::size_t kAxes = 5;
/// Neighbours along the first differ least in rank.
inline constexpr std::array<Axis, kAxes> kAllAxes = {Axis::tensor, Axis::context, Axis::expert,
                                                     Axis::pipeline, Axis::data};

/// "tensor", "context", "expert", "pipeline" or "data".
std::string_view name(Axis axis);

/// One number per axis.
struct PerAxis {
  std::array<int, kAxes> value{};

  int& operator[](Axis axis) { return value[static_cast<std::size_t>(axis)]; }
  int operator[](Axis axis) const { return value[static_cast<std::size_t>(axis)]; }
  friend bool operator==(const PerAxis&, const PerAxis&) = default;
};

/// Ranks along each axis.
struct GridShape {
  PerAxis extent{{1, 1, 1, 1, 1}};

  int operator[](Axis axis) const { return extent[axis]; }
  /// The product of all extents. @throws Error (exit 2) if it is above 2^31 - 1
  int ranks() const;
  /// "tensor 2 x data 4": the axes above 1, or "1 rank".
  std::string describe() const;
  friend bool operator==(const GridShape&, const GridShape&) = default;
};

/// The shape of `ranks` ranks with these extents, data taking what is left.
/// @throws Error (exit 2) if an extent is below 1, the ranks do not divide, or are above 2^31 - 1
GridShape fit_grid(int ranks, int tensor = 1, int context = 1, int expert = 1, int pipeline = 1);

/// Coordinates of a rank, and back.
PerAxis coordinates(const GridShape& shape, int rank);
int rank_at(const GridShape& shape, const PerAxis& coordinates);

/// The sequences of a step that a rank has: part `index` of `parts` equal ones.
struct SequencePart {
  int index = 0;
  int parts = 1;
};
SequencePart sequence_part(const GridShape& shape, int rank);

/// A set of axes.
class AxisSet {
 public:
  constexpr AxisSet(std::initializer_list<Axis> axes) {
    for (const Axis axis : axes) has_[static_cast<std::size_t>(axis)] = true;
  }
  constexpr bool has(Axis axis) const { return has_[static_cast<std::size_t>(axis)]; }

 private:
  std::array<bool, kAxes> has_{};
};

/// The ranks that differ from `rank` in `axes` only, itself included, ascending.
std::vector<int> members(const GridShape& shape, int rank, AxisSet axes);

/// The groups of ranks that communicate: one along each axis, and those that span several.
enum class Group : unsigned char {
  world,
  tensor,
  context,
  expert,
  pipeline,
  data,
  experts,               ///< hold all experts of a layer between them: tensor x expert
  dense_gradients,       ///< hold the same cut dense parameters: context x expert x data
  expert_gradients,      ///< hold the same experts: context x data
  replicated_gradients,  ///< hold the same whole parameters: tensor x context x expert x data
  model                  ///< hold one replica of the model between them: tensor x expert x pipeline
};
inline constexpr std::size_t kGroups = 11;

/// "world", "tensor", …: what execution::Communication::group and messages say.
std::string_view name(Group group);
std::optional<Group> group_named(std::string_view name);
AxisSet axes(Group group);
/// Ranks of each such group of a grid.
int group_size(const GridShape& shape, Group group);

/// The group over which a persistent bucket's gradients are summed.
/// @param bucket_group execution::Bucket::group, "dense", "expert" or "replicated"
/// @throws Error for any other
Group gradient_group(std::string_view bucket_group);

}  // namespace stowage::parallel
