#pragma once

#include <cstddef>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "execution/global_index.hpp"
#include "layers/trainer.hpp"
#include "parallel/mpi.hpp"

namespace stowage::drivers {

/// The tensors that outlive a step as they are on one rank that has all of them, whatever ranks
/// share out or cut: what checkpoints and dumps speak of. The device must be idle.
class WholeTensors {
 public:
  /// Both outlive this.
  WholeTensors(layers::Trainer& trainer, const parallel::Communicator& world);

  /// Every tensor that outlives a step, in the order of the layout: the same on every rank.
  std::vector<std::string> names() const;
  const execution::TensorInfo& info(const std::string& name) const;
  /// Collective. The bytes of a tensor on rank 0, nothing elsewhere. Of the ranks that have an
  /// element one speaks for it: of a parameter or gradient, one whose shard is up to date.
  std::vector<std::byte> gather(const std::string& name) const;
  /// Writes what this rank holds of bytes [offset, offset + from.size()) of a tensor.
  void write(const std::string& name, std::size_t offset, std::span<const std::byte> from) const;

 private:
  /// A tensor of a parameter: its facts as one rank would have them, and this rank's part of it.
  struct Whole {
    execution::TensorInfo info;
    execution::GlobalIndex index;
  };
  /// Elements of a rank's part, on their way to rank 0: the index of its first and how many.
  struct Portion {
    execution::GlobalIndex index;
    std::int64_t elements = 0;
  };

  const execution::PersistentLayout& layout() const;
  execution::GlobalIndex index(const std::string& name) const;
  /// Elements of this rank's part that it speaks for.
  execution::Range spoken_for(const std::string& name) const;
  std::vector<std::byte> read(const std::string& name, execution::Range range) const;

  layers::Trainer& trainer_;
  const parallel::Communicator& world_;
  std::map<std::string, Whole> wholes_;  ///< of the tensors of parameters
};

}  // namespace stowage::drivers
