#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "drivers/bench_offload/cases.hpp"
#include "execution/device.hpp"
#include "execution/executor.hpp"
#include "forecast/plan/trainer_plan.hpp"
#include "inputs/data/run_data.hpp"
#include "inputs/deck/deck.hpp"
#include "offload/summary.hpp"
#include "parallel/job/mpi.hpp"
#include "results/result_set.hpp"
#include "run/machine/machine.hpp"
#include "run/state/state_digest.hpp"

namespace stowage::drivers {

/// Steps that each plan of a sweep trains from the start.
inline constexpr int kDigestedSteps = 3;

/// What stowage_bench_offload is asked for besides the deck.
struct BenchOffloadOptions {
  std::int64_t seconds = 0;   ///< no round starts later, from the start of set-up on; 0: no limit
  std::int64_t samples = 50;  ///< steps of each case
  std::vector<std::string> modes{"off"};  ///< graph modes
  std::vector<std::string> only;          ///< parts of the names of cases to run; empty: all
};

/// What a case needs and takes.
struct OffloadOutcome {
  std::string name;
  std::string refused;  ///< why there is no plan; else empty
  execution::Plan plan;
  execution::ExecutorCounters counters;  ///< of one step
  double part = 1;  ///< its transient bytes, of those of the plan that keeps all
  std::size_t bytes_in_gradient_memory = 0;  ///< that lie where gradients are written later
  double rerun_s = 0;                        ///< predicted time of all that is computed again
  bool same_bits = true;  ///< loss and gradient norm of every step are those of the first plan
  /// Digest of the state after the first steps of the deck's data at its learning rate, and tensors
  /// in it that ranks hold other bits of.
  run::StateDigest::Value state;
  /// Of whole steps, one of each case in turn: the slowest rank's, on rank 0.
  std::vector<double> time_s;
  std::vector<double> rank_time_s;  ///< (steps, ranks), on rank 0
  /// What becomes of each module's tensors on this rank.
  std::vector<offload::ModuleSummary> modules;
  bool timed_modules = false;  ///< copies and waits were measured: steps are issued op by op
  std::vector<results::StageNeeds> stages;  ///< of a pipeline, on rank 0
};

/// Runs the step of a deck under many plans on one device a rank. Each plan first trains some steps
/// from the start, after which the whole state must be that of the others to the bit. Steps that
/// are timed have the same parameters and tokens: the learning rate is zero, that of expert biases
/// always, so every step computes the same values.
///
/// All ranks issue the same steps of the same plans in the same order: plans are made from the op
/// times that the first rank of each stage measured, what one rank refuses all leave out, and rank
/// 0's clock ends the rounds.
class BenchOffload {
 public:
  /// Collective over `world`, the ranks of the job, as run() is.
  BenchOffload(const parallel::Communicator& world, const inputs::Deck& deck,
               const BenchOffloadOptions& options, inputs::Data& data, run::Machine& machine);
  /// Collective.
  ~BenchOffload();

  /// Measures all cases in turn: a round is a step of each, in an order that is drawn anew.
  /// The first outcome is of the plan that keeps everything, op by op.
  std::vector<OffloadOutcome> run();
  /// Measured over predicted time of the plan that keeps all, before predictions were fitted to it.
  double fit() const { return fit_; }
  bool on_gpu() const { return machine_.has_gpu(); }
  int stages() const { return trainer_.options().sharing.ranks.shape[parallel::Axis::pipeline]; }
  /// Measured time of the ops of forward, over all microbatches of a step.
  double forward_s() const;
  /// Bytes that forward saves and that may leave, over all microbatches of a step.
  double movable_bytes() const;

 private:
  struct Values {
    std::vector<double> loss, norm;
    friend bool operator==(const Values&, const Values&) = default;
  };

  int stage_index() const {
    return trainer_.options().sharing.ranks.coordinates[parallel::Axis::pipeline];
  }
  const execution::Program& program() const;
  execution::Plan plan(const offload::PlannerOptions& options) const;
  std::vector<OffloadCase> cases() const;
  void make_device(std::size_t transient);
  void set_initial_state();
  void fit_rates(const execution::Plan& keep);
  std::unique_ptr<execution::Executor> make_executor(const execution::Plan& plan);
  /// Issues a step on the tokens that the loader stands at.
  void issue(execution::Executor& executor, double lr = 0, double weight_decay = 0);
  /// Issues a step and waits for it.
  void step(execution::Executor& executor);
  /// Times of so many steps, each from the end of the one before to its own end, as in training:
  /// the host is one step ahead.
  std::vector<double> steps_s(execution::Executor& executor, int count);
  Values values(execution::Executor& executor, int ago) const;
  OffloadOutcome prepare(const OffloadCase& one) const;
  std::vector<OffloadOutcome> prepare_all() const;
  /// Leaves out on all ranks what one refuses, and proves that the others cannot block.
  void agree(std::vector<OffloadOutcome>& outcomes) const;
  /// Brings together what the ranks measured.
  void gather(std::vector<OffloadOutcome>& outcomes) const;
  /// Trains some steps from the initial state, digests what came of it, and goes back to the start.
  void train_from_start(OffloadOutcome& outcome, execution::Executor& executor);
  void warm_up(OffloadOutcome& outcome, execution::Executor& executor);
  void time_copies(OffloadOutcome& outcome, execution::Executor& executor);
  void run_rounds(std::vector<OffloadOutcome>& outcomes,
                  const std::vector<std::unique_ptr<execution::Executor>>& executors,
                  double start_s);
  bool wanted(const std::string& name) const;

  const parallel::Communicator& world_;
  const inputs::Deck& deck_;
  BenchOffloadOptions options_;
  inputs::Data& data_;
  run::Machine& machine_;
  forecast::TrainerPlan trainer_;
  parallel::Communicator stage_;  ///< the ranks of this one's stage, which make the same plans
  offload::PlannerOptions base_;
  std::unique_ptr<execution::Device> device_;
  std::unique_ptr<run::StateDigest> digest_;
  std::unique_ptr<execution::Executor> keep_;
  double fit_ = 1;
};

}  // namespace stowage::drivers
