#pragma once

#include <cstdint>
#include <string>

#include "inputs/data/loader.hpp"
#include "inputs/deck/deck.hpp"
#include "layers/trainer.hpp"
#include "parallel/mpi.hpp"
#include "results/checkpoint_directory.hpp"

namespace stowage::drivers {

/// Checkpoints of a training run: every persistent tensor but the gradients, which no step needs
/// from the one before; the loader's position; the step.
class Checkpointing {
 public:
  /// Rank 0 checks that the directory can be written. Throws a usage error (exit 2) if not.
  Checkpointing(const inputs::Deck& deck, const parallel::Communicator& world);

  bool enabled() const { return !directory_name_.empty(); }
  /// True after `step` steps if the deck asks for a checkpoint then.
  bool due(std::int64_t step) const;

  /// Loads what checkpoint.resume asks for, on every rank. @return steps done; 0: from the start
  std::int64_t resume(layers::Trainer& trainer, inputs::Loader& loader) const;
  /// Saves on rank 0; all ranks wait. The device must be idle. @return bytes written
  std::int64_t save(layers::Trainer& trainer, const inputs::Loader& loader,
                    std::int64_t step) const;

 private:
  std::string find() const;

  const parallel::Communicator& world_;
  std::string directory_name_;
  std::string resume_;
  std::string deck_text_;
  std::string numerics_;
  std::int64_t interval_;
  results::CheckpointDirectory directory_;
};

}  // namespace stowage::drivers
