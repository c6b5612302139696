#pragma once

#include <cstddef>
#include <vector>

#include "execution/analysis.hpp"
#include "execution/persistent.hpp"
#include "execution/plan.hpp"
#include "execution/program.hpp"

namespace stowage::offload {

/// True if the place holds a saved tensor inside gradient memory.
inline bool in_gradient_memory(const execution::Program& program, const execution::Place& place) {
  return place.region == execution::Region::persistent &&
         program.info(place.tensor).lifetime == execution::Lifetime::saved;
}

/// Where kept tensors may lie for nothing: in the memory of gradients that are first written when
/// backward has used the tensor for the last time.
///
/// A gradient that is stored, not added to, holds nothing of use from the start of a step to its
/// first write. Backward writes gradients in the reverse order of forward, so what a late layer
/// saves fits into the gradients of earlier ones, and these are the tensors that have least time
/// for copies.
///
/// What one op alone uses, such as a product's workspace, needs its bytes for that op: all of it
/// that is written before the last gradient shares one place there.
class GradientMemoryReuse {
 public:
  /// Gives places to workspaces, and to the tenants for which room is found, whole tensors.
  /// @param tenants in the order in which they are tried
  /// @param alignment of each place and of its end
  GradientMemoryReuse(const execution::Program& program, const execution::PersistentLayout& layout,
                      const std::vector<execution::Tensor>& tenants, std::size_t alignment);

  /// Whether a tenant has a place.
  bool any() const { return any_; }
  bool has(execution::Tensor tensor) const { return !offsets_[tensor.id].empty(); }
  /// In the persistent region.
  std::size_t offset(execution::Tensor tensor, int buffer) const {
    return offsets_[tensor.id][buffer];
  }

  /// Moves back to the transient region what a plan still reads when a gradient is written there:
  /// reruns may read a tensor later than the program does.
  void leave_in_time(execution::Plan& plan) const;

 private:
  /// Memory of one gradient with its padding, and the op that writes it first.
  struct Room {
    std::size_t begin = 0, end = 0;
    int tensor = -1;
    int free_until = 0;
  };
  /// Bytes that nothing has taken, within contiguous rooms.
  struct Gap {
    std::size_t begin = 0, end = 0;
  };

  void place_workspaces(const execution::Program& program, std::size_t alignment);
  void find_rooms(const execution::Program& program, const execution::PersistentLayout& layout,
                  const std::vector<execution::UseSpan>& spans);
  bool take(std::size_t bytes, int last_use, std::size_t alignment, std::size_t& offset);
  std::vector<Room>::const_iterator room_at(std::size_t byte) const;
  int free_until(std::size_t begin, std::size_t end) const;

  std::vector<Room> rooms_;  ///< in the order of addresses
  std::vector<Gap> gaps_;
  std::vector<std::vector<std::size_t>> offsets_;  ///< by tensor and buffer; empty: not there
  bool any_ = false;
};

}  // namespace stowage::offload
