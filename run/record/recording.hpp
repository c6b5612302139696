#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "forecast/plan/checkpoint_memory.hpp"
#include "inputs/data/run_data.hpp"
#include "inputs/deck/command_line.hpp"
#include "inputs/deck/deck.hpp"
#include "parallel/job/mpi.hpp"
#include "results/json_log.hpp"
#include "results/progress.hpp"
#include "results/result_set.hpp"
#include "run/checkpoints/checkpoint_job.hpp"
#include "run/judge/capacity_use.hpp"
#include "run/judge/judge.hpp"
#include "run/machine/machine.hpp"
#include "run/record/mllog.hpp"
#include "run/record/profile.hpp"
#include "run/record/report.hpp"
#include "run/record/source_losses.hpp"

namespace stowage::run {

/// Ranks whose own part of a step was another one the first time. What is wrong in the loss is so
/// in backward too, and is told as the first.
struct Erred {
  std::vector<int> in_loss, in_backward;

  /// Where the error was, as far as it can be told.
  const std::vector<int>& ranks() const { return in_loss.empty() ? in_backward : in_loss; }
};

/// What a run leaves behind: the result set, the JSON lines, and what rank 0 prints. On other ranks
/// every call does nothing.
class Recording {
 public:
  /// Collective. Throws a usage error (exit 2) if an output cannot be written.
  /// @param first_step steps done before this run: its result never replaces the one it continues
  Recording(const parallel::Communicator& world, const inputs::Deck& deck,
            const inputs::CommandLine& command, int argc, const char* const* argv,
            const Machine& machine, const inputs::Data& data, std::int64_t first_step,
            double start_s);

  /// Keeps what the run goes on from.
  void resumed(const results::ResumedFrom& from);
  /// Prints the header.
  /// @param device_bytes, pinned_bytes the most that a rank plans to use
  /// @param saving of this rank
  void planned(const results::Fields& facts, std::int64_t device_bytes, std::int64_t pinned_bytes,
               const forecast::CheckpointMemory& saving);
  /// Everything that can be refused was not: opens the log, keeps the memory of a step, op by op.
  /// @param tokens_seen before this run
  void begin(const forecast::TrainerPlan& plan, double tokens_seen);
  void step(const StepReport& report);
  /// Keeps and prints what a second attempt at the step says of the cause.
  void done_again(const StepReport& report, const Erred& erred);
  void evaluation(std::int64_t step, const Evaluations& found);
  /// Keeps norms of the weights of embedding, layers and head after a step.
  void weight_norms(std::int64_t step, const std::vector<double>& norms);
  /// Likewise of what the step has changed them by.
  void update_norms(std::int64_t step, const std::vector<double>& norms);
  /// Keeps the digest of the state after a step.
  void state(std::int64_t step, const std::string& digest);
  void checkpoint(const CheckpointJob::Written& file);
  /// Keeps where the data stands after a step: what a restart would go on from.
  void position(std::int64_t step, const inputs::LoaderPosition& position);
  /// Prints a line of its own.
  void note(const std::string& line);
  /// Keeps what steps timed op by op have shown, and prints it.
  void profile(const Profile& profile);
  /// Writes metrics and verdict, closes the result set, prints the end.
  void finish(const results::Verdict& verdict, const History& history,
              const forecast::TrainerPlan& plan);

  /// Of the run, as its result set has it; of rank 0.
  const std::string& uuid() const { return run_.uuid; }
  /// Tokens of documents in a step, on average over a pass.
  double tokens_per_step() const { return tokens_per_step_; }

 private:
  bool root() const { return set_ != nullptr; }
  void add_metrics(const History& history, const forecast::TrainerPlan& plan);
  void add_rates(const History& history, const forecast::TrainerPlan& plan);
  void add_files(const History& history);
  void log_norms(const std::string& what, std::int64_t step, const std::vector<double>& norms);

  const inputs::Deck& deck_;
  const Machine& machine_;
  int ranks_;
  std::int64_t first_step_;
  std::int64_t last_step_;
  bool quiet_;
  double start_s_;
  double first_step_s_ = 0;
  inputs::PackingSummary packing_;
  double tokens_per_step_;  ///< of documents, on average over a pass
  std::int64_t device_bytes_ = 0, pinned_bytes_ = 0;
  forecast::CheckpointMemory saving_;
  results::RunInfo run_;
  std::vector<results::RankInfo> rank_infos_;
  std::unique_ptr<results::ResultSet> set_;
  std::filesystem::path log_path_;
  results::JsonLog log_;
  std::unique_ptr<MlLog> mllog_;
  std::unique_ptr<results::Progress> progress_;
  std::optional<CapacityUse> capacities_;
  results::Series* train_ = nullptr;
  results::Series* again_ = nullptr;             ///< if a step was done twice
  results::Series* board_ = nullptr;             ///< on a GPU
  results::Series* routers_ = nullptr;           ///< if routers have losses
  results::Series* activation_norms_ = nullptr;  ///< likewise
  results::Series* gradient_norms_ = nullptr;    ///< if steps tell them
  results::Series* weight_norms_ = nullptr;      ///< if the deck asks for them
  results::Series* update_norms_ = nullptr;      ///< likewise
  results::Series* mtp_ = nullptr;               ///< if heads predict further tokens
  results::Series* router_load_ = nullptr;       ///< if steps tell it
  std::int64_t router_layers_ = 0;
  results::Series* head_ = nullptr;            ///< if the head has a z-loss
  std::optional<SourceLosses> source_losses_;  ///< if the deck asks for them
  results::Series* experts_ = nullptr;         ///< if ranks share experts
  results::Series* validation_ = nullptr;
  results::Series* mtp_validation_ = nullptr;   ///< if the deck asks for them
  results::Series* validation_sets_ = nullptr;  ///< if the deck names them
  results::Series* saved_ = nullptr;            ///< from the first file on
  std::vector<CheckpointJob::Written> files_;
};

}  // namespace stowage::run
