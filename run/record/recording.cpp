#include "run/record/recording.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <numeric>

#include "execution/error.hpp"
#include "inputs/data/run_section.hpp"
#include "layers/mixers/stream_squares.hpp"
#include "layers/model/flops.hpp"
#include "layers/model/model.hpp"
#include "offload/lifetimes.hpp"
#include "results/console.hpp"
#include "results/part_file.hpp"
#include "run/command/output_files.hpp"
#include "run/record/result_config.hpp"
#include "run/record/router_load.hpp"

namespace stowage::run {
namespace {

/// What is wrong with a step that was skipped.
std::string fault(const StepReport& report) {
  return std::isfinite(report.grad_norm)
             ? fmt::format("gradient norm {:.4g} is a spike", report.grad_norm)
             : "gradient is not finite";
}

/// "rank 3 (host n2, GPU-1f0c...)".
std::string rank_text(const results::RankInfo& info) {
  return fmt::format("rank {} (host {}{}{})", info.rank, info.host,
                     info.gpu_uuid.empty() ? "" : ", ", info.gpu_uuid);
}

}  // namespace

Recording::Recording(const parallel::Communicator& world, const inputs::Deck& deck,
                     const inputs::CommandLine& command, int argc, const char* const* argv,
                     const Machine& machine, const inputs::Data& data, std::int64_t first_step,
                     double start_s)
    : deck_(deck),
      machine_(machine),
      ranks_(world.size()),
      first_step_(first_step),
      last_step_(inputs::read(deck, &inputs::RunConfig::steps)),
      quiet_(command.quiet),
      start_s_(start_s),
      packing_(data.train->packing()),
      tokens_per_step_(
          static_cast<double>(inputs::read(deck, &inputs::TrainConfig::global_batch_size) *
                              inputs::read(deck, &inputs::TrainConfig::seq_length)) *
          packing_.efficiency()) {
  rank_infos_ = gather_ranks(world, machine);
  run_ = results::begin_run(argc, argv, ranks_, inputs::read(deck, &inputs::RunConfig::seed));
  if (world.rank() != 0) return;
  results::Fields software = {{"mpi", parallel::mpi_library()}};
  software.insert(software.end(), machine.software().begin(), machine.software().end());
  results::ResultHeader header = result_header("train", deck, run_, rank_infos_, software);
  for (const std::string& file : data.files()) header.files.push_back(results::record_file(file));
  const ResultPaths paths = result_paths(deck, command, first_step);
  set_ = std::make_unique<results::ResultSet>(paths.result, header);
  log_path_ = paths.log;
  results::require_writable(log_path_, results::FileKind::json_lines);
  mllog_ = std::make_unique<MlLog>(deck, first_step > 0);
  train_ = &set_->series("train", "step",
                         {{"loss", "nat", "mean over the counted targets of the step"},
                          {"grad_norm", "1", "global norm of the gradient before clipping"},
                          {"lr", "1", "learning rate"},
                          {"tokens", "1", "of documents, in all steps until its end"},
                          {"step_time", "s", "from the end of the step before to its own"},
                          {"mem_device", "B", "planned device memory of a rank"},
                          {"ok", "1", "1: the step changed the parameters"}});
  validation_ = &set_->series("train", "val_step",
                              {{"val_loss", "nat", "held-out loss per token"},
                               {"val_accuracy", "1", "held-out tokens whose logit is the largest"},
                               {"val_tokens", "1", "held-out tokens that were read"},
                               {"val_targets", "1", "of them, those that are counted"}});
  std::vector<results::SeriesColumn> sets;
  for (const inputs::Data::HeldOut& set : data.held_out)
    if (!set.name.empty()) sets.push_back({set.name, "nat", "its loss per token"});
  if (!sets.empty()) validation_sets_ = &set_->series("val_loss", "step", std::move(sets));
  if (inputs::read(deck, &inputs::RunConfig::source_losses)) source_losses_.emplace(*set_, data);
}

void Recording::resumed(const results::ResumedFrom& from) {
  if (root()) set_->refer(from);
}

void Recording::planned(const results::Fields& facts, std::int64_t device_bytes,
                        std::int64_t pinned_bytes, const forecast::CheckpointMemory& saving) {
  device_bytes_ = device_bytes;
  pinned_bytes_ = pinned_bytes;
  saving_ = saving;
  if (!root()) return;
  if (quiet_) return;
  fmt::print("{}{}", results::header_text("stowage_train", run_, rank_infos_, facts),
             results::ranks_text(rank_infos_));
  std::fflush(stdout);
}

void Recording::begin(const forecast::TrainerPlan& plan, double tokens_seen) {
  first_step_s_ = results::steady_seconds();
  if (!root()) return;
  log_ = results::JsonLog(log_path_, first_step_ > 0);
  mllog_->run_begins(parameter_count(plan), ranks_);
  const auto& training = *plan.training().back();
  if (training.recorded.router_losses)
    routers_ = &set_->series("router", "step",
                             {{"aux_loss", "1", "load balancing, sum over layers"},
                              {"z_loss", "1", "of router logits, sum over layers"}});
  if (training.recorded.z_loss)
    head_ = &set_->series("head", "step",
                          {{"z_loss", "1", "of the next tokens' logits, with its weight"}});
  if (const auto depths = std::ssize(training.recorded.mtp_losses); depths > 0)
    mtp_ = &set_->series("mtp", "step",
                         {{"loss",
                           "nat",
                           "mean over the counted targets of each depth of multi-token prediction",
                           {depths}}});
  if (const layers::ModelConfig::Mtp& mtp = plan.options().model.mtp; mtp.evaluated)
    mtp_validation_ = &set_->series(
        "mtp", "val_step",
        {{"val_loss", "nat", "held-out loss of each depth", {std::int64_t{mtp.depths}}}});
  if (const auto load = training.recorded.program.find(layers::kRouterLoad)) {
    router_layers_ = training.recorded.program.info(load).buffers.front().shape.front();
    const std::vector<std::int64_t> by_layer = {router_layers_};
    router_load_ = &set_->series(
        "router_load", "step",
        {{"busiest", "1", "tokens of each layer's busiest expert, over the mean", by_layer},
         {"entropy", "1", "of the shares of its experts, over that of equal ones", by_layer},
         {"dead", "1", "its experts without a token", by_layer}});
  }
  if (const auto norms = training.recorded.program.find(layers::kGradientNorms)) {
    const auto& shape = training.recorded.program.info(norms).buffers.front().shape;
    gradient_norms_ = &set_->series("gradient_norms", "step",
                                    {{"embedding", "1", "before clipping"},
                                     {"layers", "1", "of each", {shape.front() - 2}},
                                     {"head", "1", "with the last norm"}});
  }
  if (const auto squares = training.recorded.program.find(layers::kStreamSquares)) {
    const auto& shape = training.recorded.program.info(squares).buffers.front().shape;
    activation_norms_ =
        &set_->series("activation_norms", "step",
                      {{"layers", "1", "RMS of what each reads", {shape.front() - 1}},
                       {"head", "1", "likewise"}});
  }
  if (const auto* between = plan.weight_norms()) {
    const auto& shape = between->recorded.program.info(between->recorded.norms).buffers[0].shape;
    weight_norms_ = &set_->series("weight_norms", "step",
                                  {{"embedding", "1", "after the step"},
                                   {"layers", "1", "of each", {shape.front() - 2}},
                                   {"head", "1", "with the last norm"}});
  }
  if (const auto squares = training.recorded.program.find(layers::kUpdateSquares)) {
    const auto& shape = training.recorded.program.info(squares).buffers.front().shape;
    update_norms_ = &set_->series("update_norms", "step",
                                  {{"embedding", "1", "of what the step changed"},
                                   {"layers", "1", "of each", {shape.front() - 2}},
                                   {"head", "1", "with the last norm"}});
  }
  if (training.recorded.expert_rows)
    experts_ = &set_->series(
        "experts", "step",
        {{"capacity_class", "1", "rows that a rank's experts had room for, over balanced ones"},
         {"reruns", "1", "of the step, in a larger class each"},
         {"busiest_rank", "1", "most rows of a rank in a layer and microbatch, over balanced ones"},
         {"busiest_expert", "1", "likewise of an expert"},
         {"exchanged", "B", "that rank 0 exchanges with those that share experts, with reruns"}});
  if (machine_.has_gpu())
    board_ = &set_->series("gpu", "step",
                           {{"clock", "Hz", "of rank 0's multiprocessors, when the step had ended"},
                            {"power", "W", "of its board, over some ten milliseconds"},
                            {"temperature", "degC", "of its chip"}});
  capacities_.emplace(*set_, plan);
  const auto live =
      offload::live_bytes_by_step(training.plan, offload::live_ranges(training.plan),
                                  execution::Region::transient, execution::kAlignment);
  results::Series& memory = set_->series(
      "memory", "op", {{"transient", "B", "live transient bytes at each step of the plan"}});
  for (std::size_t i = 0; i < live.size(); ++i)
    memory.append(static_cast<std::int64_t>(i), {static_cast<double>(live[i])});
  progress_ = std::make_unique<results::Progress>(
      results::Progress::Options{.first_step = first_step_,
                                 .last_step = last_step_,
                                 .tokens_per_step = tokens_per_step_,
                                 .interval_s = 2,
                                 .out = quiet_ ? nullptr : stdout,
                                 .terminal = results::is_terminal(stdout)});
  if (first_step_ > 0) progress_->note(fmt::format("# resumed after step {}", first_step_));
  log_.write("start", {{"first_step", first_step_},
                       {"last_step", last_step_},
                       {"run", inputs::read(deck_, &inputs::RunConfig::name)},
                       {"parameters", parameter_count(plan)},
                       {"tokens", tokens_seen}});
}

void Recording::step(const StepReport& report) {
  if (!root()) return;
  if (board_ != nullptr) {
    const BoardReading board = machine_.board();
    board_->append(report.step, {board.clock_hz, board.power_w, board.temperature_c});
  }
  if (routers_ != nullptr) routers_->append(report.step, {report.aux_loss, report.z_loss});
  if (head_ != nullptr) head_->append(report.step, {report.head_z_loss});
  if (mtp_ != nullptr) mtp_->append(report.step, report.mtp_losses);
  if (experts_ != nullptr)
    experts_->append(report.step,
                     {report.experts.capacity, static_cast<double>(report.experts.reruns),
                      report.experts.busiest_rank, report.experts.busiest_expert,
                      report.experts.exchanged_bytes});
  train_->append(report.step,
                 {report.loss, report.grad_norm, report.lr, report.tokens_seen, report.time_s,
                  static_cast<double>(device_bytes_), report.ok ? 1.0 : 0.0});
  capacities_->add(report);
  mllog_->step(report);
  results::Fields line = {{"step", report.step},
                          {"loss", report.loss},
                          {"grad_norm", report.grad_norm},
                          {"lr", report.lr},
                          {"tokens", report.tokens_seen},
                          {"step_time", report.time_s},
                          {"capacity", report.capacity},
                          {"op_by_op", capacities_->op_by_op(report)},
                          {"ok", report.ok}};
  if (routers_ != nullptr) {
    line.push_back({"aux_loss", report.aux_loss});
    line.push_back({"z_loss", report.z_loss});
  }
  if (head_ != nullptr) line.push_back({"head_z_loss", report.head_z_loss});
  for (std::size_t i = 0; i < report.mtp_losses.size(); ++i)
    line.push_back({fmt::format("mtp_loss_{}", i + 1), report.mtp_losses[i]});
  if (router_load_ != nullptr) {
    const RouterLoad load(report.router_load, router_layers_);
    router_load_->append(report.step, load.values());
    line.push_back({"busiest_expert", std::ranges::max(load.busiest)});
    line.push_back({"router_entropy", std::ranges::min(load.entropy)});
    line.push_back({"dead_experts", std::reduce(load.dead.begin(), load.dead.end())});
  }
  if (activation_norms_ != nullptr) activation_norms_->append(report.step, report.activation_norms);
  if (gradient_norms_ != nullptr) gradient_norms_->append(report.step, report.gradient_norms);
  const bool due = report.step == last_step_ ||
                   report.step % inputs::read(deck_, &inputs::RunConfig::log_interval) == 0;
  if (source_losses_) {
    source_losses_->add(report);
    if (due || report.stop)
      for (const auto& field : source_losses_->keep(report.step)) line.push_back(field);
  }
  log_.write("step", line);
  if (report.passed_batches > 0)
    progress_->note(fmt::format(
        "# WARN step {}: {} batches before it were passed over: none of their tokens is a target",
        report.step, report.passed_batches));
  if (!report.ok)
    progress_->note(fmt::format("# step {}: {}, nothing changed", report.step, fault(report)));
  if (report.experts.reruns > 0)
    progress_->note(fmt::format(
        "# step {}: experts lacked room, done again with {:.3g} times the balanced rows",
        report.step, report.experts.capacity));
  if (due || results::is_terminal(stdout))
    progress_->update({.step = report.step,
                       .loss = report.loss,
                       .lr = report.lr,
                       .grad_norm = report.grad_norm,
                       .time_s = report.time_s},
                      capacities_->text());
}

void Recording::done_again(const StepReport& report, const Erred& erred) {
  if (!root()) return;
  const FirstAttempt& first = *report.first;
  const std::vector<int>& ranks = erred.ranks();
  const bool transient = !first.same_bits || !ranks.empty();
  if (again_ == nullptr)
    again_ = &set_->series("again", "step",
                           {{"loss", "nat", "of the first attempt at a step that was done twice"},
                            {"grad_norm", "1", "likewise"},
                            {"transient", "1", "1: the second attempt had other bits"},
                            {"rank", "1", "first rank whose own part had; -1: none"}});
  const double rank = ranks.empty() ? -1 : ranks.front();
  again_->append(report.step, {first.loss, first.grad_norm, transient ? 1.0 : 0.0, rank});
  log_.write("again", {{"step", report.step},
                       {"loss", first.loss},
                       {"grad_norm", first.grad_norm},
                       {"transient", transient},
                       {"rank", static_cast<std::int64_t>(rank)}});
  if (!transient)
    return progress_->note(
        fmt::format("# step {}: done again with the same bits: the cause is in the state or the "
                    "tokens",
                    report.step));
  std::string where = "in an exchange or behind it, on a rank that cannot be told";
  if (!ranks.empty()) {
    where = erred.in_loss.empty() ? "in the gradients of " : "in the loss of ";
    const std::size_t begin = where.size();
    for (const int at : ranks)
      where += (where.size() == begin ? "" : ", ") + rank_text(rank_infos_[at]);
  }
  progress_->note(fmt::format(
      "# WARN step {}: gradient norm {:.4g}, done again {:.4g}: an error of the machine, {}",
      report.step, first.grad_norm, report.grad_norm, where));
}

void Recording::position(std::int64_t step, const inputs::LoaderPosition& position) {
  if (!root()) return;
  results::Series& series =
      set_->series("loader", "step",
                   {{"seed", "1", "seed of the order of samples"},
                    {"epoch", "1", "passes over the data finished"},
                    {"sample", "1", "next sample of this pass, over all ranks"}});
  series.append(step, {static_cast<double>(position.seed), static_cast<double>(position.epoch),
                       static_cast<double>(position.sample)});
}

void Recording::note(const std::string& line) {
  if (root()) progress_->note(line);
}

void Recording::evaluation(std::int64_t step, const Evaluations& found) {
  if (!root()) return;
  const Evaluation& all = found.all;
  validation_->append(step, {all.loss, all.accuracy, all.tokens, all.targets});
  mllog_->evaluation(step * inputs::read(deck_, &inputs::TrainConfig::global_batch_size), all.loss);
  results::Fields line = {{"step", step},
                          {"val_loss", all.loss},
                          {"val_accuracy", all.accuracy},
                          {"val_tokens", all.tokens},
                          {"val_targets", all.targets}};
  const bool averages = inputs::read(deck_, &inputs::EvalConfig::ema);
  if (averages) line.push_back({"weights", std::string("ema")});
  std::vector<double> losses;
  std::string sets;
  for (const auto& [name, own] : found.sets) {
    line.push_back({"val_loss." + name, own.loss});
    line.push_back({"val_targets." + name, own.targets});
    losses.push_back(own.loss);
    sets += fmt::format("{} {} {:.4f}", sets.empty() ? ":" : ",", name, own.loss);
  }
  if (validation_sets_ != nullptr) validation_sets_->append(step, losses);
  if (mtp_validation_ != nullptr) {
    std::vector<double> by_depth;
    for (const auto& [sum, targets] : all.further) {
      by_depth.push_back(sum / targets);  // NaN without a target
      line.push_back({fmt::format("val_mtp_loss_{}", by_depth.size()), by_depth.back()});
    }
    mtp_validation_->append(step, by_depth);
  }
  log_.write("evaluation", line);
  progress_->note(
      fmt::format("step {}: validation loss{} {:.4f}, accuracy {:.2f} %, of {:.0f} targets in "
                  "{:.0f} held-out tokens{}",
                  step, averages ? " of averaged weights" : "", all.loss, 100 * all.accuracy,
                  all.targets, all.tokens, sets));
}

void Recording::weight_norms(std::int64_t step, const std::vector<double>& norms) {
  if (!root()) return;
  weight_norms_->append(step, norms);
  log_norms("weight_norm", step, norms);
}

void Recording::update_norms(std::int64_t step, const std::vector<double>& norms) {
  if (!root()) return;
  update_norms_->append(step, norms);
  log_norms("update_norm", step, norms);
}

void Recording::log_norms(const std::string& what, std::int64_t step,
                          const std::vector<double>& norms) {
  double squares = 0;
  for (const double norm : norms) squares += norm * norm;
  log_.write(what + "s",
             {{"step", step}, {what, std::sqrt(squares)}, {"largest", std::ranges::max(norms)}});
}

void Recording::state(std::int64_t step, const std::string& digest) {
  if (!root()) return;
  set_->add(results::StateAt{step, digest});
  log_.write("state_digest", {{"step", step}, {"digest", digest}});
  progress_->note(fmt::format("# step {}: state digest {}", step, digest));
}

void Recording::checkpoint(const CheckpointJob::Written& file) {
  if (!root()) return;
  files_.push_back(file);
  const auto bytes = static_cast<double>(file.bytes);
  if (saved_ == nullptr)
    saved_ = &set_->series("checkpoint", "step",
                           {{"bytes", "B", "of the file"},
                            {"stall", "s", "that training waited"},
                            {"beside", "", "1: it waited for a copy alone; 0: for the file"},
                            {"time", "s", "until the file was whole"}});
  saved_->append(file.step, {bytes, file.stall_s, file.overlapping ? 1.0 : 0.0, file.seconds});
  log_.write("checkpoint", {{"step", file.step},
                            {"bytes", file.bytes},
                            {"stall_s", file.stall_s},
                            {"time_s", file.seconds}});
  progress_->note(
      fmt::format("step {}: checkpoint of {:.1f} MB in {:.2f} s, of which training waited {:.3f} s",
                  file.step, bytes / 1e6, file.seconds, file.stall_s));
}

void Recording::add_files(const History& history) {
  if (files_.empty()) return;
  const bool overlapping = std::ranges::any_of(files_, &CheckpointJob::Written::overlapping);
  std::vector<double> stalls, times;
  for (const CheckpointJob::Written& file : files_) {
    if (file.overlapping == overlapping) stalls.push_back(file.stall_s);
    times.push_back(file.seconds);
  }
  const auto bytes = static_cast<double>(files_.back().bytes);
  set_->add(results::metric("ckpt/bytes", bytes));
  set_->add(results::metric("ckpt/stall", results::summarize(stalls)));
  if (overlapping) {
    double stalled = std::accumulate(stalls.begin(), stalls.end(), 0.0), steps = 0;
    for (const StepReport& report : history.steps) steps += report.time_s;
    set_->add(results::metric("ckpt/stalled_part", stalled / (stalled + steps)));
  }
  set_->add(results::rate_metric("ckpt/bytes_per_s", bytes, results::summarize(times)));
}

void Recording::add_metrics(const History& history, const forecast::TrainerPlan& plan) {
  const auto add = [&](std::string_view tag, double value) {
    set_->add(results::metric(tag, value));
  };
  const double end_s = results::steady_seconds();
  add("train/wall_time", end_s - start_s_);
  add("train/setup_time", first_step_s_ - start_s_);
  add("data/packing_efficiency", packing_.efficiency());
  add("data/split_documents", static_cast<double>(packing_.split_documents));
  add("data/dropped_tokens", static_cast<double>(packing_.dropped_tokens));
  add("train/parameters", static_cast<double>(parameter_count(plan)));
  add("train/peak_device_bytes", static_cast<double>(device_bytes_));
  add("train/pinned_bytes", static_cast<double>(pinned_bytes_));
  add("train/persistent_bytes", static_cast<double>(plan.layout().bytes()));
  add("train/transient_bytes", static_cast<double>(plan.transient_bytes()));
  if (saving_.saves) add("ckpt/copy_bytes", static_cast<double>(saving_.device_bytes()));
  if (machine_.has_gpu())
    add("train/driver_bytes",
        static_cast<double>(machine_.driver_bytes(static_cast<std::int64_t>(
            plan.layout().bytes() + plan.transient_bytes() + saving_.device_bytes()))));
  if (machine_.collectives_bytes() > 0)
    add("train/collectives_bytes", static_cast<double>(machine_.collectives_bytes()));
  if (!history.evaluations.empty()) {
    double best = HUGE_VAL;
    for (const auto& e : history.evaluations)
      if (std::isfinite(e.loss)) best = std::min(best, e.loss);
    add("train/val_loss", history.evaluations.back().loss);
    if (std::isfinite(best)) add("train/best_val_loss", best);
    add("train/val_perplexity", std::exp(history.evaluations.back().loss));
    add("train/val_accuracy", history.evaluations.back().accuracy);
    add("train/val_tokens", history.evaluations.back().tokens);
    add("train/val_targets", history.evaluations.back().targets);
  }
  add_files(history);
  if (history.steps.empty()) return;
  add("train/tokens", history.steps.back().tokens_seen);
  add("train/skipped_steps", static_cast<double>(skipped_steps(history)));
  double reruns = 0;
  for (const StepReport& report : history.steps) reruns += report.experts.reruns;
  if (experts_ != nullptr) add("experts/reruns", reruns);
  if (again_ != nullptr) {
    const std::vector<double>& transient = again_->column("transient");
    add("train/transient_errors", std::accumulate(transient.begin(), transient.end(), 0.0));
  }
  const auto add_tail = [&](const char* tag, double StepReport::*loss) {
    if (const double mean = tail_mean(history, loss); std::isfinite(mean)) add(tag, mean);
  };
  add_tail("train/loss", &StepReport::loss);
  if (routers_ != nullptr) {
    add_tail("router/aux_loss", &StepReport::aux_loss);
    add_tail("router/z_loss", &StepReport::z_loss);
  }
  if (head_ != nullptr) add_tail("head/z_loss", &StepReport::head_z_loss);
  if (std::isfinite(history.energy_j))
    add("energy/j_per_token",
        history.energy_j / (tokens_per_step_ * static_cast<double>(history.steps.size())));
  capacities_->add_metrics(history);
  add_rates(history, plan);
}

void Recording::add_rates(const History& history, const forecast::TrainerPlan& plan) {
  std::vector<double> times;
  for (const StepReport& report : timed_steps(history)) times.push_back(report.time_s);
  const results::Summary summary = results::summarize(times);
  set_->add(results::metric("train/step_time", summary));
  set_->add(results::rate_metric("train/tokens_per_s", tokens_per_step_, summary));
  const layers::StepWork work{tokens_per_step_, history.pairs};
  const layers::StepFlops flops = layers::step_flops(plan.options().model, work);
  set_->add(results::rate_metric("train/model_flops_per_s", flops.model, summary));
  set_->add(results::rate_metric("train/model_flops_per_s_gpu", flops.model / ranks_, summary));
  const double executed = history.executed_flops;
  set_->add(results::rate_metric("train/hw_flops_per_s", executed, summary));
  set_->add(
      results::rate_metric("train/megatron_compat_flops_per_s", flops.megatron_compat, summary));
  // What a step does, so that a reader can compute the rates again.
  set_->add(results::Samples{.path = "train/step_time",
                             .time_s = times,
                             .attributes = {{"tokens", tokens_per_step_},
                                            {"model_flops", flops.model},
                                            {"hw_flops", executed},
                                            {"megatron_compat_flops", flops.megatron_compat}}});
}

void Recording::profile(const Profile& profile) {
  if (!root()) return;
  profile.add_to(*set_);
  if (!quiet_) progress_->note(profile.text());
}

void Recording::finish(const results::Verdict& verdict, const History& history,
                       const forecast::TrainerPlan& plan) {
  if (!root()) return;
  progress_->close();
  add_metrics(history, plan);
  for (results::Choice& choice : machine_.choices(deck_)) set_->add(std::move(choice));
  mllog_->run_ends(verdict.exit() == execution::Exit::valid);
  log_.write(verdict);
  for (const results::Metric& m : set_->metrics()) log_.write(m);
  const std::filesystem::path older = set_->finish(verdict);
  const auto& metrics = set_->metrics();
  const char* tag = history.steps.empty() ? "train/val_loss" : "train/tokens_per_s";
  const auto rate = std::find_if(metrics.begin(), metrics.end(),
                                 [&](const results::Metric& m) { return m.tag == tag; });
  const results::Metric headline = rate != metrics.end() ? *rate : metrics.front();
  if (!quiet_) fmt::print("{}", results::metrics_text(metrics));
  if (!quiet_ || verdict.outcome() == results::Outcome::invalid)
    fmt::print("{}", results::validation_text(verdict));
  if (!older.empty() && !quiet_)
    fmt::print("# {}: {}\n",
               first_step_ > 0 ? "the stopped part before this one" : "the set of an earlier run",
               older.string());
  fmt::print("{}", results::verdict_line(verdict, headline, set_->uuid(), set_->path()));
  const auto require_complete = [&](const auto& lines) {
    if (!lines.complete())
      throw execution::Error(
          execution::Exit::runtime,
          fmt::format("{} is whole, but {} lacks lines that could not be written",
                      set_->path().string(), lines.path().string()));
  };
  require_complete(log_);
  require_complete(mllog_->file());
}

}  // namespace stowage::run
