#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "execution/backend.hpp"
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
  /// Announces a collective that steps will issue, by the name that messages use. Before step 1.
  /// @return its index
  virtual int announce(const std::string& name) = 0;
  /// Combines `count` elements in place over the ranks, repeatable to the bit.
  /// @param index from announce()
  virtual void all_reduce(execution::Queue& queue, int index, void* data, std::int64_t count,
                          execution::Dtype dtype, Reduction reduction) = 0;
  virtual void all_gather(execution::Queue&, void*, std::int64_t, execution::Dtype) {}
};

/// How NCCL moves data. The choices are pinned before its first communicator and never change: a
/// run is then repeatable to the bit, and what was pinned is stored with the result.
struct NcclOptions {
  std::string algorithm = "Ring";
  std::string protocol = "Simple";
  int channels = 16;        ///< thread blocks of a collective; 0: NCCL's choice
  double patience_s = 600;  ///< a collective that takes longer is stuck: the job is ended
};

/// The collectives of the cuda backend, on NCCL, on the current GPU of this thread. Collective over
/// `ranks`; runs each kind of collective once. Only in builds with CUDA.
/// @param device_bytes set to the device memory that the library and these first runs took
/// @throws Error for a failed call, or after `patience_s`
std::shared_ptr<Collectives> make_nccl_collectives(execution::Backend& backend,
                                                   const Communicator& ranks, std::string group,
                                                   const NcclOptions& options,
                                                   std::int64_t* device_bytes = nullptr);

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
