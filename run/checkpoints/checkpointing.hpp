#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "inputs/data/loader.hpp"
#include "inputs/deck/deck.hpp"
#include "parallel/job/mpi.hpp"
#include "results/checkpoint_directory.hpp"
#include "results/result_set.hpp"
#include "run/checkpoints/checkpoint_job.hpp"
#include "run/state/start_weights.hpp"
#include "run/step/trainer.hpp"

namespace stowage::run {

/// Checkpoints of a training run: every persistent tensor but the gradients, which no step needs
/// from the one before; the loader's position; the step.
class Checkpointing {
 public:
  /// What for: a run that only evaluates saves nothing, may begin where training ends, and asks for
  /// the checkpoint's model alone.
  enum class Use { train, evaluate };

  /// Collective. Checks on rank 0 that the directory can be written, and finds what
  /// checkpoint.resume asks for. Throws a usage error (exit 2) if it cannot be written or read, if
  /// every checkpoint is damaged, or if it belongs to a deck with other numerics or to other data
  /// and checkpoint.allow_changes does not allow it.
  Checkpointing(const inputs::Deck& deck, const parallel::Communicator& world,
                std::string data_digest, Use use = Use::train);

  /// True if the run goes on from something.
  bool resumed() const { return !found_.empty(); }
  /// That: the path of a checkpoint, or hf: and a folder.
  const std::string& found() const { return found_; }
  bool enabled() const { return !directory_name_.empty(); }
  /// Steps that are done before this run; 0: it starts from the beginning.
  std::int64_t first_step() const { return first_step_; }
  /// Tokens of documents that training had seen by then; none if an earlier version has not said.
  const std::optional<double>& tokens_seen() const { return tokens_seen_; }
  /// What checkpoint.allow_changes has let through: a line for people of each key, or of the data.
  const std::vector<std::string>& changes() const { return changes_; }
  /// What the run goes on from, if that is a checkpoint of a run.
  const std::optional<results::ResumedFrom>& from() const { return from_; }
  /// True after `step` steps if the deck asks for a checkpoint then.
  bool due(std::int64_t step) const;
  /// True on rank 0 if the deck asks for a checkpoint by now: the others learn it from a step.
  bool due_by_clock() const;

  /// Collective. What saving will take beside a plan, and where all ranks put the copy.
  /// @param left device bytes that nobody else takes
  forecast::CheckpointMemory memory(const inputs::Deck& deck, const forecast::TrainerPlan& plan,
                                    std::size_t left) const;
  /// Collective. Takes the memory for copies of the state, before step 1.
  /// @param run uuid of the run, for what it saves
  void prepare(Trainer& trainer, forecast::CopyPlace copy, std::string run);
  /// Loads what was found, on every rank: of a trainer of weights alone these.
  /// @param loader goes to where the checkpoint's was; null if it only evaluates
  /// @return lines for people on what it has more or less than the run keeps, which
  /// checkpoint.allow_changes allows
  std::vector<std::string> resume(Trainer& trainer, inputs::Loader* loader) const;
  /// Closes the weights that the run started from. resume() may not be called afterwards.
  void started() {
    if (weights_) weights_->close();
  }
  /// Loads the averages of what was found, into a trainer of weights alone.
  /// @throws Error (exit 2) if it has none
  void load_averages(Trainer& trainer) const;

  /// Whether training goes on while the file is written.
  enum class Pace { overlapping, wait };
  /// How far training has come.
  struct Reached {
    std::int64_t step = 0;
    double tokens_seen = 0;
  };
  /// Collective. Begins to save, and ends it if it is to wait, or if there is no memory for a copy.
  /// The device must be idle. While the file before is still being written this waits for it, or if
  /// the deck says so the new one is put off: then it is due by the clock when that one is done.
  /// @return false: put off
  /// @param since_s when the step before ended: training has waited since then
  bool save(const inputs::Loader& loader, const Reached& reached, Pace pace, double since_s);
  /// Gives up what is not written yet; nothing is saved after that.
  void abandon();
  /// The end of the copy that the last save has the device make; null if it made none.
  execution::TimedEvent* copied() { return overlapping_ ? &writer_->taken() : nullptr; }
  /// Looks after a file that is being written. @throws what went wrong with it
  void look();
  /// Collective. Waits for a file that is being written.
  void settle();
  /// The checkpoint of a step.
  std::filesystem::path file_of(std::int64_t step) const { return directory_.file_of(step); }
  /// Files that were finished since the last call; on rank 0.
  std::vector<CheckpointJob::Written> written();

 private:
  void claim();
  std::string find(const inputs::Deck& deck) const;
  std::string find_latest() const;
  std::vector<std::string> changed_keys(const inputs::Deck& deck,
                                        const results::Checkpoint& found) const;
  std::vector<std::string> changed_data(const inputs::Deck& deck,
                                        const results::Checkpoint& found) const;
  void look_for_changes(const inputs::Deck& deck, const results::Checkpoint& found);
  std::unique_ptr<results::CheckpointDraft> begin(const inputs::Loader& loader,
                                                  const Reached& reached,
                                                  CheckpointJob::Task& task) const;
  void end_job();

  const parallel::Communicator& world_;
  Use use_;
  std::string directory_name_;
  std::string resume_;
  std::string found_;  ///< empty: nothing
  std::optional<results::ResumedFrom> from_;
  std::int64_t first_step_ = 0;
  std::optional<double> tokens_seen_;
  std::vector<std::string> changes_;
  bool other_optimizer_ = false;  ///< than the checkpoint's
  std::string deck_text_;
  std::string data_digest_;
  std::string run_;  ///< its uuid
  std::int64_t interval_;
  double interval_s_;
  double last_s_;  ///< when the run began or has saved last
  results::CheckpointDirectory directory_;
  std::optional<StartWeights> weights_;  ///< what was found, if it is weights alone
  bool may_put_off_;
  std::vector<results::TensorSpec> specs_;  ///< of what is saved
  std::unique_ptr<CheckpointWriter> writer_;
  execution::Device* device_ = nullptr;
  execution::Queue* queue_ = nullptr;   ///< of the device, which steps begin and end on
  std::unique_ptr<CheckpointJob> job_;  ///< under way
  double since_s_ = 0;                  ///< training has waited since then
  bool overlapping_ = false;            ///< it waits for a copy alone
  bool put_off_ = false;
  std::vector<CheckpointJob::Written> written_;
};

}  // namespace stowage::run
