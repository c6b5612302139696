#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "drivers/train/start_weights.hpp"
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
  /// What for: a run that only evaluates saves nothing, and may begin where training ends.
  enum class Use { train, evaluate };

  /// Collective. Checks on rank 0 that the directory can be written, and finds what
  /// checkpoint.resume asks for. Throws a usage error (exit 2) if it cannot be written or read, if
  /// every checkpoint is damaged, or if it belongs to a deck with other numerics or to other data.
  Checkpointing(const inputs::Deck& deck, const parallel::Communicator& world,
                std::string data_digest, Use use = Use::train);

  /// True if the run goes on from something.
  bool resumed() const { return !found_.empty(); }
  bool enabled() const { return !directory_name_.empty(); }
  /// Steps that are done before this run; 0: it starts from the beginning.
  std::int64_t first_step() const { return first_step_; }
  /// True after `step` steps if the deck asks for a checkpoint then.
  bool due(std::int64_t step) const;
  /// True on rank 0 if the deck asks for a checkpoint by now: the others learn it from a step.
  bool due_by_clock() const;

  /// Loads what was found, on every rank.
  void resume(layers::Trainer& trainer, inputs::Loader& loader) const;
  /// Saves on rank 0; all ranks wait. The device must be idle. @return bytes written
  std::int64_t save(layers::Trainer& trainer, const inputs::Loader& loader, std::int64_t step);

 private:
  std::string find() const;
  void require_same_data(const inputs::Deck& deck, const results::Checkpoint& found) const;
  void require_same_numerics(const inputs::Deck& deck, const results::Checkpoint& found) const;

  const parallel::Communicator& world_;
  std::string directory_name_;
  std::string resume_;
  std::string found_;  ///< path of the checkpoint to resume from, or empty
  std::int64_t first_step_ = 0;
  std::string deck_text_;
  std::string data_digest_;
  std::int64_t interval_;
  double interval_s_;
  double last_s_;  ///< when the run began or has saved last
  results::CheckpointDirectory directory_;
  std::optional<StartWeights> weights_;  ///< what was found, if it is weights alone
};

}  // namespace stowage::drivers
