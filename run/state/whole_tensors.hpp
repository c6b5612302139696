#pragma once

#include <cstddef>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "execution/global_index.hpp"
#include "layers/state/state_copy.hpp"
#include "parallel/job/mpi.hpp"
#include "run/step/trainer.hpp"

namespace stowage::run {

/// A rank's part of a tensor.
struct TensorPart {
  execution::GlobalIndex index;  ///< which elements of the whole they are
  std::int64_t elements = 0;
  std::byte* data = nullptr;  ///< one behind the other
  bool on_host = false;       ///< in pinned memory, not on the device
};

/// The tensors that outlive a step as they are on one rank that has all of them, whatever ranks
/// share out or cut: what checkpoints and dumps speak of. The device must be idle.
class WholeTensors {
 public:
  /// Both outlive this.
  WholeTensors(Trainer& trainer, const parallel::Communicator& world);

  /// Every tensor that outlives a step, in the order of the whole model's layout: the same
  /// on every rank.
  std::vector<std::string> names() const;
  const execution::TensorInfo& info(const std::string& name) const;
  /// The elements of a tensor that this rank speaks for (layers/state/state_copy.hpp), where they
  /// lie: one part or more.
  std::vector<TensorPart> spoken_parts(const std::string& name) const;
  /// All elements of a tensor that this rank has.
  TensorPart held_part(const std::string& name) const;
  /// Collective. The bytes of a tensor on rank 0, nothing elsewhere.
  std::vector<std::byte> gather(const std::string& name) const;
  /// Writes what this rank holds of bytes [offset, offset + from.size()) of a tensor.
  void write(const std::string& name, std::size_t offset, std::span<const std::byte> from) const;

 private:
  /// A tensor of a parameter: its facts as one rank would have them, and this rank's part of it.
  struct Whole {
    execution::TensorInfo info;
    execution::GlobalIndex index;
  };
  /// Of what this rank has.
  const execution::PersistentLayout& layout() const;
  execution::GlobalIndex index(const std::string& name) const;
  TensorPart part(const std::string& name, execution::Range range) const;

  Trainer& trainer_;
  const parallel::Communicator& world_;
  layers::Spoken spoken_;
  execution::PersistentLayout all_stages_;  ///< of a rank that has all layers of the model
  std::map<std::string, Whole> wholes_;     ///< of the tensors of parameters
};

}  // namespace stowage::run
