#pragma once

#include <array>
#include <string_view>
#include <vector>

#include "parallel/grid.hpp"
#include "parallel/mpi.hpp"

namespace stowage::parallel {

/// The groups of ranks that communicate: one along each axis, and those that span several.
enum class Group : unsigned char {
  world,
  tensor,
  context,
  expert,
  pipeline,
  data,
  dense_gradients,   ///< hold the same dense parameters: context x expert x data
  expert_gradients,  ///< hold the same experts: context x data
  model              ///< hold one replica of the model between them: tensor x expert x pipeline
};
inline constexpr std::size_t kGroups = 9;

/// "world", "tensor", …: what execution::Communication::group and messages say.
std::string_view name(Group group);
AxisSet axes(Group group);

/// The group over which a persistent bucket's gradients are summed.
/// @param bucket_group execution::Bucket::group, "dense" or "expert"
/// @throws Error for any other
Group gradient_group(std::string_view bucket_group);

/// This rank's place in the grid, with a communicator for each of its groups.
class ProcessGrid {
 public:
  /// Collective over `world`, whose size is shape.ranks().
  ProcessGrid(const Communicator& world, const GridShape& shape);

  const GridShape& shape() const { return shape_; }
  const PerAxis& coordinates() const { return coordinates_; }
  /// In the order of world ranks.
  const Communicator& group(Group group) const { return groups_[static_cast<std::size_t>(group)]; }

 private:
  GridShape shape_;
  PerAxis coordinates_;
  std::vector<Communicator> groups_;  ///< by Group
};

}  // namespace stowage::parallel
