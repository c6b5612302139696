#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "execution/program.hpp"
#include "parallel/ordered_reduce.hpp"

namespace stowage::parallel {

/// The collectives of one group on one backend. Calls enqueue; they do not block the host.
///
/// All ranks of the group make the same calls in the same order, on one queue each. One object has
/// a message space of its own, so two of them may be used on two queues.
class Collectives {
 public:
  virtual ~Collectives() = default;

  /// The group's name in the process grid.
  virtual const std::string& group() const = 0;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  /// Combines `count` elements in place over the ranks, repeatable to the bit.
  virtual void all_reduce(execution::Queue& queue, void* data, std::int64_t count,
                          execution::Dtype dtype, Reduction reduction) = 0;
};

/// The collectives of the host backend, on MPI. Collective over `ranks`.
std::shared_ptr<Collectives> make_host_collectives(const Communicator& ranks, std::string group);

/// The op, on the comm lane, that combines tensors over the ranks of a group, in place.
///
/// Several tensors must be neighbours in one bucket of the persistent region, in order: they are
/// reduced as one range from the first to the last, the padding between them included. All have one
/// dtype and one buffer.
/// @throws Error for tensors of several dtypes; at launch, if they are no neighbours
execution::Op all_reduce_op(const execution::Program& program, std::string name,
                            std::span<const execution::Tensor> tensors, Reduction reduction,
                            std::shared_ptr<Collectives> collectives);

}  // namespace stowage::parallel
