#include "run/train.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <memory>
#include <optional>

#include "forecast/plan/checkpoint_memory.hpp"
#include "forecast/plan/options.hpp"
#include "forecast/plan/parallel_section.hpp"
#include "forecast/plan/planned_rank.hpp"
#include "forecast/plan/read_deck.hpp"
#include "forecast/plan/run_section.hpp"
#include "inputs/data/data_section.hpp"
#include "inputs/data/run_data.hpp"
#include "inputs/data/run_section.hpp"
#include "inputs/deck/check.hpp"
#include "layers/step/step_section.hpp"
#include "parallel/job/agreement.hpp"
#include "parallel/job/signals.hpp"
#include "parallel/proof/require_joint_proof.hpp"
#include "results/result_set.hpp"
#include "run/checkpoints/checkpointing.hpp"
#include "run/command/output_files.hpp"
#include "run/command/same_deck.hpp"
#include "run/export/export_job.hpp"
#include "run/judge/judge.hpp"
#include "run/machine/host_memory.hpp"
#include "run/machine/machine.hpp"
#include "run/ranges.hpp"
#include "run/record/dump.hpp"
#include "run/record/logits.hpp"
#include "run/record/profile.hpp"
#include "run/record/recording.hpp"
#include "run/record/report.hpp"
#include "run/record/step_trace.hpp"
#include "run/state/state_digest.hpp"

namespace stowage::run {
namespace {

using execution::Exit;
using inputs::Deck;
using parallel::Communicator;

std::unique_ptr<forecast::TrainerPlan> make_plan(const Deck& deck, const Communicator& world,
                                                 Machine& machine, std::int64_t microbatches,
                                                 const inputs::Data& data, bool logits) {
  forecast::RunNeeds needs = forecast::training_needs(deck, data);
  if (logits) needs.logits = layers::Logits::all;
  return std::make_unique<forecast::TrainerPlan>(forecast::trainer_options(
      deck, needs, microbatches, machine.connect(deck, world), machine.rank_order()));
}

/// What stowage_plan plans, without a device: one rank of each stage stands for all.
Exit dry_run(const Deck& deck, const Communicator& world) {
  if (world.rank() > 0) return Exit::valid;
  const auto stages = inputs::read(deck, &forecast::ParallelConfig::pipeline);
  const std::int64_t ranks = world.size() % stages == 0 ? world.size() : 1;
  const forecast::PlannedData data = forecast::planned_data(deck);
  fmt::print("{}", data.text());
  for (int stage = 0; stage < stages; ++stage) {
    forecast::TrainerPlan plan(rank_options(deck, data, stage, ranks));
    plan.require_proven();
    fmt::print("{}", dry_run_text(deck, plan));
  }
  return Exit::valid;
}

std::string dump_path(const Deck& deck, const TrainOptions& options) {
  if (options.dump_step == 0 || !options.dump.empty()) return options.dump;
  return fmt::format("{}.step{}.h5", inputs::read(deck, &inputs::RunConfig::name),
                     options.dump_step);
}

/// What finite differences say of the gradients, on every rank; nothing if they are not asked for,
/// or would take long.
std::optional<GradientSlice::Finding> compare_gradients(const Deck& deck, const Communicator& world,
                                                        Machine& machine) {
  constexpr double kHostFlops = 1e11, kGpuFlops = 1e13;  // of seconds
  using When = forecast::ValidateConfig::When;
  const When when = inputs::read(deck, &forecast::ValidateConfig::finite_differences);
  const bool quick = GradientSlice::flops(deck) <= (machine.has_gpu() ? kGpuFlops : kHostFlops);
  if (when == When::off || (when == When::automatic && !quick)) return std::nullopt;
  GradientSlice::Finding finding;
  if (world.rank() == 0) {
    GradientSlice slice(deck, machine.backend(), GradientSlice::storage(machine.backend()));
    slice.backward();
    finding = slice.compare();
  }
  finding.error = world.sum(finding.error);  // the others have 0
  return finding;
}

/// What the options ask for lies within the run, so that no run ends with a file missing.
void check_options(const Deck& deck, const TrainOptions& options, std::int64_t first_step) {
  const std::int64_t last = inputs::read(deck, &inputs::RunConfig::steps);
  if (options.time_ops < 0) execution::throw_usage("--time-ops {}: must be >= 0", options.time_ops);
  if (options.dump_step == 0 && !options.dump.empty())
    execution::throw_usage("--dump {}: needs --dump-step", options.dump);
  const bool within = options.dump_step > first_step && options.dump_step <= last;
  if (options.dump_step != 0 && !within)
    execution::throw_usage("--dump-step {}: this run does steps {} to {}", options.dump_step,
                           first_step + 1, last);
}

/// All files that rank 0 will write, none of which may be another one, or what the run reads.
void check_outputs(const Deck& deck, const inputs::CommandLine& command,
                   const TrainOptions& options, const inputs::Data& data, std::int64_t first_step) {
  const ResultPaths paths = result_paths(deck, command, first_step);
  std::vector<results::NamedPath> outputs = {
      {std::string(inputs::key(&inputs::RunConfig::output)), paths.result}, {"--json", paths.log}};
  const auto also = [&](std::string_view what, const std::string& path, results::FileKind kind) {
    results::require_free(path, kind);
    outputs.push_back({std::string(what), path});
  };
  if (!options.logits.empty()) also("--logits", options.logits, results::FileKind::dump);
  if (const auto path = inputs::read(deck, &inputs::RunConfig::mllog); !path.empty())
    also(inputs::key(&inputs::RunConfig::mllog), path, results::FileKind::mlperf_log);
  if (options.dump_step != 0) also("--dump", dump_path(deck, options), results::FileKind::dump);
  if (!options.trace.empty()) also("--trace", options.trace, results::FileKind::trace);
  if (const auto folder = inputs::read(deck, &forecast::CheckpointConfig::directory);
      !folder.empty())
    outputs.push_back({std::string(inputs::key(&forecast::CheckpointConfig::directory)), folder});
  results::require_apart(outputs, input_files(deck, command, data));
}

/// What a run that only evaluates needs.
void check_evaluation(const Deck& deck, const TrainOptions& options, const inputs::Data& data,
                      const Checkpointing& checkpoints, std::int64_t microbatches) {
  if (!options.logits.empty() && !options.evaluate_only)
    execution::throw_usage("--logits {}: needs --evaluate-only", options.logits);
  if (!options.evaluate_only) return;
  if (data.held_out.empty())
    execution::throw_usage("--evaluate-only: fewer than two tokens are held out; see {}, and {}",
                           inputs::cite(deck, &inputs::DataConfig::held_out_fraction),
                           inputs::key(&inputs::DataConfig::validation_path));
  for (const auto axis : {&forecast::ParallelConfig::tensor, &forecast::ParallelConfig::context,
                          &forecast::ParallelConfig::pipeline})
    if (!options.logits.empty() && inputs::read(deck, axis) != 1)
      execution::throw_usage("--logits {}: {}: ranks share a sequence's logits; allowed: 1",
                             options.logits, inputs::cite(deck, axis));
  if (!options.logits.empty() && microbatches != 1)
    execution::throw_usage("--logits {}: a step has {} microbatches on a rank ({}, {}); allowed: 1",
                           options.logits, microbatches,
                           inputs::cite(deck, &inputs::TrainConfig::global_batch_size),
                           inputs::cite(deck, &inputs::TrainConfig::micro_batch_size));
  if (!checkpoints.resumed() && inputs::read(deck, &forecast::CheckpointConfig::resume) != "never")
    execution::throw_usage(
        "--evaluate-only: {}: there is no checkpoint; name its folder, or say checkpoint.resume: a "
        "checkpoint, hf:FOLDER, or never, which evaluates initial weights",
        inputs::cite(deck, &forecast::CheckpointConfig::directory));
}

/// The run proper: from a trainer that is ready to its verdict.
class Run {
 public:
  Run(const Communicator& world, const Deck& deck, const TrainOptions& options, Machine& machine,
      inputs::Data& data, Trainer& trainer, Checkpointing& checkpoints, ExportJobs& exports,
      Recording& recording)
      : world_(world),
        deck_(deck),
        data_(data),
        trainer_(trainer),
        recording_(recording),
        checkpoints_(checkpoints),
        exports_(exports),
        options_(options),
        machine_(machine),
        profile_(machine.backend(), world.size()),
        dump_(world, options.dump_step, dump_path(deck, options)),
        digest_(trainer.device(), trainer.plan(), world),
        loop_(trainer, data, inputs::read<layers::LearningRate>(deck),
              inputs::read(deck, &layers::OptimizerConfig::weight_decay),
              inputs::read(deck, &forecast::ValidateConfig::bad_steps_again) ? Loop::Bad::done_again
                                                                             : Loop::Bad::skipped) {
    if (world.rank() != 0) return;
    if (!options.trace.empty()) trace_.emplace(options.trace, results::FileKind::trace);
    if (!options.logits.empty()) logits_.emplace(options.logits, results::FileKind::dump);
  }

  Run(const Run&) = delete;
  Run& operator=(const Run&) = delete;
  /// What is being written ends before the device does.
  ~Run() { checkpoints_.abandon(); }

  bool go(const std::optional<GradientSlice::Finding>& gradients) {
    if (options_.evaluate_only) return evaluate_only();
    history_.gradients = gradients;
    const std::int64_t last = inputs::read(deck_, &inputs::RunConfig::steps);
    const std::vector<std::string> said = checkpoints_.resume(trainer_, data_.train.get());
    rehearse();
    checkpoints_.started();
    tokens_seen_ = checkpoints_.tokens_seen().value_or(
        static_cast<double>(checkpoints_.first_step()) * recording_.tokens_per_step());
    recording_.begin(trainer_.plan(), tokens_seen_);
    for (const std::string& changed : checkpoints_.changes()) recording_.note(changed);
    for (const std::string& line : said) recording_.note(line);
    if (checkpoints_.resumed() && !checkpoints_.tokens_seen())
      recording_.note("# tokens seen before this run are estimated: the checkpoint has no count");
    if (data_.held_out.empty()) recording_.note("# no evaluation: too little data is held out");
    const double energy_j = machine_.energy_j();
    std::int64_t step = checkpoints_.first_step();
    if (step == last) checkpoint_at_ = step, history_.all_before = true;  // only the end is left
    loop_.restart_clock();  // reading a checkpoint is set-up, not the first step
    for (; step < last && !stopped_; ++step) {
      if (looked_at(step, last))
        look_at(step);
      else
        note(loop_.issue(step, asked()));
      const std::int64_t done = step + 1;
      if (pause_due(done, last)) pause(done);
      stopped_ = done < last && stop_heard_;
    }
    note(loop_.drain());
    history_.energy_j = world_.sum(machine_.energy_j() - energy_j);
    finish_looks();
    recording_.position(step, data_.train->position());
    if (digest_at_ != step) keep_digest(step);
    count_work();
    if (checkpoint_at_ != step) save(step, Checkpointing::Pace::wait);
    checkpoints_.settle();
    note_saved();
    exports_.settle();
    note_saved();
    if (stopped_ && !checkpoints_.enabled())
      recording_.note("# stopped by a signal; checkpoint.directory is not set: nothing was saved");
    if (!stopped_ && (history_.evaluations.empty() || history_.evaluations.back().step != step))
      evaluate(step);
    return !stopped_;
  }

  const History& history() const { return history_; }

 private:
  bool evaluate_only() {
    (void)checkpoints_.resume(trainer_, nullptr);  // its norms are for steps
    recording_.begin(trainer_.plan(), checkpoints_.tokens_seen().value_or(0));
    for (const std::string& changed : checkpoints_.changes()) recording_.note(changed);
    if (!checkpoints_.resumed())
      recording_.note("# no checkpoint: the initial weights are evaluated");
    keep_digest(checkpoints_.first_step());
    evaluate(checkpoints_.first_step());
    if (options_.logits.empty()) return true;
    look_at_evaluated([&] { dump_logits(trainer_, data_, logits_); });
    recording_.note(fmt::format("# logits are written to {}", options_.logits));
    return true;
  }

  /// What this rank is asked to do after the next step.
  Loop::Then asked() {
    checkpoints_.look();
    note_saved();
    if (parallel::stop_signal() != 0) return Loop::Then::stop;
    return checkpoints_.due_by_clock() ? Loop::Then::save : Loop::Then::go_on;
  }

  /// Does the first step, keeps its digest, and goes back to the start.
  void rehearse() {
    if (checkpoints_.first_step() > 0 ||
        !inputs::read(deck_, &forecast::ValidateConfig::replayed_step))
      return;
    const inputs::LoaderPosition start = data_.train->position();
    (void)loop_.issue(0);
    (void)loop_.drain();
    rehearsed_ = digest_.make().text;
    trainer_.set_initial_state();
    (void)checkpoints_.resume(trainer_,
                              data_.train.get());  // weights that the run starts from, if any
    data_.train->seek(start);
    loop_.state_set();
    loop_.restart_clock();
  }

  void compare_with_rehearsal() {
    history_.replayed = digest_.make().text == rehearsed_;
    loop_.restart_clock();
  }

  bool pause_due(std::int64_t done, std::int64_t last) const {
    const std::int64_t interval = inputs::read(deck_, &inputs::EvalConfig::interval);
    return save_due(done) || digest_due(done) || norms_due(done) ||
           (done == 1 && !rehearsed_.empty()) ||
           (interval > 0 && done % interval == 0 && done < last);
  }

  bool save_due(std::int64_t done) const { return save_heard_ || checkpoints_.due(done); }

  bool digest_due(std::int64_t done) const {
    const std::int64_t interval =
        inputs::read(deck_, &forecast::ValidateConfig::state_digest_interval);
    return interval > 0 && done % interval == 0;
  }

  bool norms_due(std::int64_t done) const {
    const std::int64_t interval = inputs::read(deck_, &inputs::RunConfig::weight_norms);
    return interval > 0 && done % interval == 0;
  }

  void pause(std::int64_t done) {
    note(loop_.drain());
    if (norms_due(done)) keep_norms(done);
    const std::int64_t interval = inputs::read(deck_, &inputs::EvalConfig::interval);
    if (interval > 0 && done % interval == 0) evaluate(done);
    if (done == 1 && !rehearsed_.empty()) compare_with_rehearsal();
    if (digest_due(done)) keep_digest(done);
    if (save_due(done)) save(done, Checkpointing::Pace::overlapping);
    save_heard_ = false;
  }

  bool looked_at(std::int64_t step, std::int64_t last) const {
    return dump_.due(step) || step >= last - options_.time_ops;
  }

  /// A step by itself, timed op by op or dumped.
  void look_at(std::int64_t step) {
    note(loop_.drain());
    const bool timed = step >= inputs::read(deck_, &inputs::RunConfig::steps) - options_.time_ops;
    if (dump_.due(step)) dump_.before(trainer_, data_);
    if (timed) profile_.begin(loop_.next());
    loop_.restart_clock();
    note(loop_.issue(step, asked()));
    std::optional<StepReport> report = loop_.drain();
    report->disturbed = true;
    note(report);
    if (timed) profile_.end(part_of_recorded(trainer_.plan(), report->pairs));
    if (dump_.due(step)) {
      dump_.after(trainer_, *report, inputs::read(deck_, &layers::OptimizerConfig::weight_decay));
      recording_.note(fmt::format("# step {} is written to {}", step + 1, dump_.path()));
    }
    loop_.restart_clock();
  }

  void count_work() {
    double mine = 0;
    for (const StepReport& report : history_.steps) mine += report.pairs;
    mine /= std::max<double>(1, static_cast<double>(history_.steps.size()));
    history_.executed_flops = world_.sum(executed_flops(trainer_.plan(), mine));
    // Ranks that train on the same tokens have counted the same pairs.
    const double holders = static_cast<double>(world_.size()) /
                           trainer_.plan().options().sharing.ranks.sequences().parts;
    history_.pairs = world_.sum(mine) / holders;
  }

  void finish_looks() {
    if (profile_.empty()) return;
    recording_.profile(profile_);
    if (options_.trace.empty()) return;
    const parallel::GridShape& shape = trainer_.plan().options().sharing.ranks.shape;
    const results::Trace trace = step_trace(world_, shape, profile_);
    if (trace_) trace.write(*trace_, "--trace");
  }

  void note(std::optional<StepReport> report) {
    if (!report) return;
    tokens_seen_ += report->tokens;
    report->tokens_seen = tokens_seen_;
    history_.steps.push_back(*report);
    stop_heard_ = stop_heard_ || report->stop;
    save_heard_ = save_heard_ || report->save;
    recording_.step(*report);
    if (!report->update_squares.empty())
      recording_.update_norms(report->step, norms_of_all_ranks(report->update_squares));
    if (report->first) recording_.done_again(*report, ranks_that_erred(*report->first));
  }

  /// Of sums of squares of each rank, on rank 0: collective.
  std::vector<double> norms_of_all_ranks(const std::vector<double>& squares) const {
    const layers::Sharing& sharing = trainer_.plan().options().sharing;
    std::vector<double> norms(squares.size());
    const std::size_t bytes = squares.size() * sizeof(double);
    std::vector<double> one(squares.size());
    for (const std::string& told :
         world_.gather({reinterpret_cast<const char*>(squares.data()), bytes})) {
      std::memcpy(one.data(), told.data(), bytes);
      std::ranges::transform(norms, one, norms.begin(), std::plus{});
      if (!layers::shares_gradients(sharing)) break;  // each has all
    }
    for (double& norm : norms) norm = std::sqrt(norm);
    return norms;
  }

  /// Those whose own loss or gradients had other bits the second time, on rank 0: collective.
  Erred ranks_that_erred(const FirstAttempt& first) const {
    Erred erred;
    const char* mine = !first.same_own_loss ? "loss" : !first.same_own_norm ? "backward" : "";
    const std::vector<std::string> said = world_.gather(mine);
    for (std::size_t rank = 0; rank < said.size(); ++rank) {
      if (said[rank] == "loss") erred.in_loss.push_back(static_cast<int>(rank));
      if (said[rank] == "backward") erred.in_backward.push_back(static_cast<int>(rank));
    }
    return erred;
  }

  void keep_norms(std::int64_t step) {
    recording_.weight_norms(step, trainer_.weight_norms());
    loop_.restart_clock();
  }

  /// Averages are in the place of weights meanwhile, if the deck evaluates them.
  template <class Look>
  void look_at_evaluated(Look&& look) {
    const bool averages = trainer_.plan().ema_exchange() != nullptr;
    if (averages) trainer_.exchange_ema();
    look();
    if (!averages) return;
    trainer_.exchange_ema();
    trainer_.device().synchronize();
    loop_.restart_clock();
  }

  void evaluate(std::int64_t step) {
    if (data_.held_out.empty()) return;
    Evaluations found;
    look_at_evaluated(
        [&] { found = loop_.evaluate(inputs::read(deck_, &inputs::EvalConfig::steps)); });
    const Evaluation& all = found.all;
    history_.evaluations.push_back({step, all.loss, all.accuracy, all.tokens, all.targets});
    recording_.evaluation(step, found);
  }

  void keep_digest(std::int64_t step) {
    const StateDigest::Value value = digest_.make();
    digest_at_ = step;
    history_.copies = world_.size() > 1;
    history_.differing += static_cast<double>(value.differing.size());
    if (!value.differing.empty())
      recording_.note(
          fmt::format("# step {}: not the same bits: {}", step, value.differing.front()));
    recording_.state(step, value.text);
    loop_.restart_clock();
  }

  void save(std::int64_t step, Checkpointing::Pace pace) {
    if (!checkpoints_.enabled()) return;
    const bool saved = checkpoints_.save(*data_.train, {step, tokens_seen_}, pace, loop_.clock_s());
    loop_.restart_clock();
    if (saved)
      checkpoint_at_ = step;
    else if (step < inputs::read(deck_, &inputs::RunConfig::steps) && !stop_heard_)
      // The step that ends a run is saved once the file before is written: nothing is put off.
      recording_.note(fmt::format(
          "# step {}: the checkpoint is put off, the one before is still being written", step));
    if (saved && checkpoints_.copied() != nullptr) loop_.restart_clock(*checkpoints_.copied());
    note_saved();
  }

  void note_saved() {
    for (const CheckpointJob::Written& file : checkpoints_.written()) {
      recording_.checkpoint(file);
      exports_.saved(file.step, checkpoints_.file_of(file.step));
    }
    for (const std::string& folder : exports_.made()) recording_.note(folder);
  }

  const Communicator& world_;
  const Deck& deck_;
  inputs::Data& data_;
  Trainer& trainer_;
  Recording& recording_;
  Checkpointing& checkpoints_;
  ExportJobs& exports_;
  const TrainOptions& options_;
  const Machine& machine_;
  Profile profile_;
  Dump dump_;
  std::optional<results::PartFile> trace_;   ///< on rank 0 of a run that is drawn
  std::optional<results::PartFile> logits_;  ///< on rank 0 of an evaluation that keeps them
  StateDigest digest_;
  Loop loop_;
  History history_;
  double tokens_seen_ = 0;  ///< of documents, in all steps so far
  std::int64_t checkpoint_at_ = -1;
  std::int64_t digest_at_ = -1;
  std::string rehearsed_;    ///< digest after the first step, the first time
  bool stop_heard_ = false;  ///< some rank was asked to stop; all know it after the same step
  bool save_heard_ = false;  ///< likewise, to save
  bool stopped_ = false;
};

}  // namespace

Exit train(const Communicator& world, const inputs::CommandLine& command, const TrainOptions& given,
           int argc, const char* const* argv) {
  const double start_s = results::steady_seconds();
  const Deck deck = forecast::read_deck(command, world.rank() == 0);
  if (command.print_config) {
    if (world.rank() == 0) fmt::print("{}", deck.text());
    return Exit::valid;
  }
  TrainOptions options = given;
  if (!options.trace.empty()) options.time_ops = std::max<std::int64_t>(options.time_ops, 1);
  if (command.dry_run) return dry_run(deck, world);
  require_same_deck(world, deck);
  const std::int64_t microbatches = inputs::check_ranks(deck, world.size());
  const parallel::SequencePart part = forecast::sequence_part(deck, world);
  inputs::Data data = open_data(deck, part.index, part.parts);
  const std::string data_digest = data.digest();
  parallel::require_equal(world, "data", data_digest);
  using Use = Checkpointing::Use;
  Checkpointing checkpoints(deck, world, data_digest,
                            options.evaluate_only ? Use::evaluate : Use::train);
  ExportJobs exports(deck, checkpoints.first_step(), world.rank() == 0 && !options.evaluate_only);
  check_evaluation(deck, options, data, checkpoints, microbatches);
  if (!options.evaluate_only && inputs::read(deck, &inputs::RunConfig::steps) == 0)
    execution::throw_usage("{}: nothing to train; see --dry-run",
                           inputs::cite(deck, &inputs::RunConfig::steps));
  check_options(deck, options, checkpoints.first_step());
  if (!options.evaluate_only &&
      checkpoints.first_step() == inputs::read(deck, &inputs::RunConfig::steps)) {
    // A run that was killed behind its last checkpoint has left no result.
    const bool again =
        world.rank() == 0 && left_unfinished(deck, command, checkpoints.first_step());
    if (world.rank() == 0)
      fmt::print(
          "# {}: checkpoint {} has done them all; {}\n",
          inputs::cite(deck, &inputs::RunConfig::steps), checkpoints.found(),
          again ? "the result set was left unfinished, and is made now" : "nothing is left to do");
    // No failure: a chain of jobs, or a job that is submitted once more, ends well.
    if (world.max(again ? 1 : 0) == 0) return Exit::valid;
  }
  if (world.rank() == 0) check_outputs(deck, command, options, data, checkpoints.first_step());
  Machine machine(deck, world);
  Recording recording(world, deck, command, argc, argv, machine, data, checkpoints.first_step(),
                      start_s);
  if (checkpoints.from()) recording.resumed(*checkpoints.from());
  const auto gradients =
      options.evaluate_only ? std::nullopt : compare_gradients(deck, world, machine);
  std::unique_ptr<forecast::TrainerPlan> plan =
      make_plan(deck, world, machine, microbatches, data, !options.logits.empty());
  plan->require_proven();
  const forecast::CheckpointMemory saving =
      options.evaluate_only ? forecast::CheckpointMemory{}
                            : checkpoints.memory(deck, *plan, machine.memory_left(*plan));
  machine.require_memory(*plan, saving.device_bytes());
  const std::size_t device_bytes =
      plan->layout().bytes() + plan->transient_bytes() + saving.device_bytes();
  const bool on_host = machine.backend().name() == "host";
  require_host_memory(plan->host_bytes() + saving.host_bytes() + (on_host ? device_bytes : 0),
                      saving.copy == forecast::CopyPlace::none ? 0 : saving.copy_bytes);
  parallel::require_joint_proof(world, plan->programs(), machine.rank_order());
  results::Fields about = facts(deck, std::string(machine.backend().name()), *plan, saving);
  about.push_back({"data", data.text()});
  about.push_back({"held out", data.held_out_text(inputs::read(deck, &inputs::EvalConfig::steps))});
  about.push_back({"packing", inputs::text(data.train->packing())});
  recording.planned(about, world.max(static_cast<std::int64_t>(device_bytes)),
                    world.max(static_cast<std::int64_t>(plan->host_bytes() + saving.host_bytes())),
                    saving);
  Trainer trainer(std::move(plan), machine.backend(),
                  [&](execution::Queue& queue) { machine.prepare(queue); });
  if (!options.evaluate_only) checkpoints.prepare(trainer, saving.copy, recording.uuid());
  const Ranges ranges(machine, trainer);
  Run run(world, deck, options, machine, data, trainer, checkpoints, exports, recording);
  const bool complete = run.go(gradients);
  results::Verdict verdict = options.evaluate_only ? judge_evaluation(deck, run.history())
                                                   : judge(deck, run.history(), complete);
  if (!complete) verdict.stop();
  recording.finish(verdict, run.history(), trainer.plan());
  const bool lost = !complete && !checkpoints.enabled();
  return lost ? Exit::invalid : verdict.exit();
}

}  // namespace stowage::run
