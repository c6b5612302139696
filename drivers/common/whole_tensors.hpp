#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "layers/trainer.hpp"
#include "parallel/mpi.hpp"

namespace stowage::drivers {

/// The tensors that outlive a step as they are on one rank that has all of them, whatever ranks
/// share out: what checkpoints and dumps speak of. The device must be idle.
class WholeTensors {
 public:
  /// Both outlive this.
  WholeTensors(layers::Trainer& trainer, const parallel::Communicator& world);

  /// Every tensor that outlives a step, in the order of the whole model's layout: the same on every
  /// rank.
  std::vector<std::string> names() const;
  const execution::TensorInfo& info(const std::string& name) const;
  /// Collective. The bytes of a tensor on rank 0, nothing elsewhere. A parameter or gradient comes
  /// from the ranks whose shard of it is up to date.
  std::vector<std::byte> gather(const std::string& name) const;
  /// Writes what this rank holds of bytes [offset, offset + from.size()) of a tensor.
  void write(const std::string& name, std::size_t offset, std::span<const std::byte> from) const;

 private:
  /// Of what this rank has.
  const execution::PersistentLayout& layout() const;
  /// Elements of the tensor that this rank speaks for; of ranks that have the same, one does.
  execution::Range spoken_for(const std::string& name) const;
  /// Those of every rank, on rank 0.
  std::vector<execution::Range> gather_spoken_for(const std::string& name) const;
  std::vector<std::byte> read(const std::string& name, execution::Range range) const;

  layers::Trainer& trainer_;
  const parallel::Communicator& world_;
  execution::PersistentLayout whole_;  ///< of one rank that has the whole model
};

}  // namespace stowage::drivers
