#pragma once

#include <cstdint>
#include <map>
#include <tuple>
#include <vector>

#include "execution/persistent.hpp"
#include "execution/plan.hpp"
#include "offload/gradient_memory_reuse.hpp"

namespace stowage::offload {

/// Makes the places of a plan while its steps are issued in order, without offsets but those of
/// what is kept in gradient memory.
///
/// A tensor's first residence is where forward writes it. It has a second one from where it comes
/// back or is computed again. A rerun writes what nobody asked it for to places of their own.
class Residency {
 public:
  Residency(const execution::Program& program, const execution::PersistentLayout& layout,
            const GradientMemoryReuse& reuse, execution::Plan& plan);

  /// Places of an op's operands, one for each buffer of each use, for the next step.
  /// @param windows places of all tensors that it uses and that have their home on the host
  std::vector<int> bind(const execution::Op& op, bool again, const std::vector<int>& windows = {});
  /// Where a buffer is now.
  int place(execution::Tensor tensor, int buffer);
  /// A place on the host for a buffer.
  int host_place(execution::Tensor tensor, int buffer);
  /// A range of bytes of a tensor in its home on the host: one place for each range.
  int home(execution::Tensor tensor, std::size_t first, std::size_t bytes);
  /// A place on the device for a range of such a tensor.
  int window(execution::Tensor tensor, std::size_t first, std::size_t bytes);
  /// Starts the second residence of one buffer.
  int come_back(execution::Tensor tensor, int buffer);

 private:
  int add(execution::Tensor tensor, int buffer, execution::Region region);
  std::vector<int> add_residence(execution::Tensor tensor);
  std::vector<int>& residence(execution::Tensor tensor);
  std::vector<int> made_again(const execution::Use& use);

  const execution::Program& program_;
  const execution::PersistentLayout& layout_;
  const GradientMemoryReuse& reuse_;
  execution::Plan& plan_;
  std::vector<std::vector<int>> now_;  ///< by tensor: the places of its residence, by buffer
  std::vector<char> again_;            ///< by tensor: it was computed again
  /// What is computed again part by part, until its last part is: the parts have one place.
  struct Unfinished {
    std::vector<int> places;
    std::int64_t elements = 0;
  };
  std::map<int, Unfinished> unfinished_;                            ///< by tensor
  std::map<std::tuple<int, std::size_t, std::size_t>, int> homes_;  ///< by tensor and range
};

}  // namespace stowage::offload
