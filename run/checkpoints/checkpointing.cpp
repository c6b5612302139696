#include "run/checkpoints/checkpointing.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <cstdio>
#include <iterator>
#include <mutex>
#include <optional>
#include <span>
#include <sstream>
#include <utility>
#include <vector>

#include "execution/error.hpp"
#include "execution/printable.hpp"
#include "forecast/plan/run_section.hpp"
#include "inputs/data/data_section.hpp"
#include "inputs/data/run_section.hpp"
#include "layers/step/step_section.hpp"
#include "results/file_threads.hpp"
#include "results/progress.hpp"
#include "run/checkpoints/shared_verification.hpp"
#include "run/state/weights.hpp"
#include "run/state/whole_tensors.hpp"

namespace stowage::run {
namespace {

constexpr std::string_view kTokensSeen = "loader.tokens";  // a value of a checkpoint
constexpr std::size_t kPieceBytes = std::size_t{8} << 20;  // read at once

/// What a checkpoint holds of a run.
std::vector<results::TensorSpec> saved(const WholeTensors& tensors) {
  std::vector<results::TensorSpec> all;
  for (const std::string& name : tensors.names()) {
    const execution::TensorInfo& info = tensors.info(name);
    if (info.lifetime != execution::Lifetime::gradient)
      all.push_back({name, info.buffers[0].dtype, info.buffers[0].shape});
  }
  return all;
}

/// One thread of four cores while training needs them, all threads while it waits.
CheckpointWriter::Threads writing_threads(const parallel::Communicator& world) {
  const int cores = parallel::cores_of_rank(world);
  return {.overlapping = results::file_threads(cores / 4), .alone = results::file_threads(cores)};
}

/// The run that has written a checkpoint; empty if that does not say.
std::string run_of(const results::CheckpointState& state) {
  const auto named = std::ranges::find(state.values, results::kRunUuid, &results::Field::name);
  return named == state.values.end() ? "" : results::text_value(state, results::kRunUuid);
}

/// Tokens that training had seen, if it says so.
std::optional<double> tokens_of(const results::CheckpointState& state) {
  const auto named = std::ranges::find(state.values, kTokensSeen, &results::Field::name);
  if (named == state.values.end()) return std::nullopt;
  return static_cast<double>(results::integer_value(state, kTokensSeen));
}

/// Elements [begin, end) of this rank's part of a tensor.
struct LoadedPiece {
  const results::TensorSpec* spec;
  const TensorPart* part;
  std::int64_t begin, end;
};

/// What this rank has of all tensors, from a file to the device.
void load_parts(const results::Checkpoint& from, std::span<const results::TensorSpec> specs,
                const WholeTensors& tensors, execution::Device& device, int threads) {
  std::vector<TensorPart> parts;
  for (const results::TensorSpec& spec : specs) parts.push_back(tensors.held_part(spec.name));
  std::vector<LoadedPiece> pieces;
  for (std::size_t i = 0; i < specs.size(); ++i) {
    const auto step =
        static_cast<std::int64_t>(kPieceBytes / execution::size_bytes(specs[i].dtype));
    for (std::int64_t begin = 0; begin < parts[i].elements; begin += step)
      pieces.push_back({&specs[i], &parts[i], begin, std::min(begin + step, parts[i].elements)});
  }
  results::Turns turns(pieces.size());
  std::mutex of_device;
  results::on_threads(threads, turns, [&](int) {
    const std::unique_ptr<execution::Event> on_this_gpu = device.backend().make_event();
    std::vector<std::byte> bytes;
    while (const std::optional<std::size_t> turn = turns.next()) {
      const auto& [spec, part, begin, end] = pieces[*turn];
      const auto size = static_cast<std::int64_t>(execution::size_bytes(spec->dtype));
      bytes.resize(static_cast<std::size_t>((end - begin) * size));
      part->index.for_each_run(
          begin, end, [&](std::int64_t local, std::int64_t global, std::int64_t count) {
            from.read(spec->name, static_cast<std::size_t>(global * size),
                      std::span(bytes).subspan(static_cast<std::size_t>((local - begin) * size),
                                               static_cast<std::size_t>(count * size)));
          });
      const std::lock_guard lock(of_device);
      device.write(spec->name, bytes, static_cast<std::size_t>(begin * size));
    }
  });
}

/// Of another optimizer than the checkpoint's: leaves out of `specs` the states that the file
/// lacks, which begin at zero. @return those of the file that the run does not have
std::vector<results::TensorSpec> match_states(const results::Checkpoint& checkpoint,
                                              std::vector<results::TensorSpec>& specs) {
  const auto is_state = [](const results::TensorSpec& spec) {
    return std::ranges::any_of(layers::kOptimizers, [&](const layers::Optimizer* optimizer) {
      return std::ranges::count(optimizer->states, spec.name.substr(0, spec.name.find('/'))) > 0;
    });
  };
  const auto lacks = [&](const std::vector<results::TensorSpec>& all) {
    return [&](const results::TensorSpec& spec) {
      return is_state(spec) &&
             std::ranges::find(all, spec.name, &results::TensorSpec::name) == all.end();
    };
  };
  std::vector<results::TensorSpec> dropped;
  std::ranges::copy_if(checkpoint.tensors(), std::back_inserter(dropped), lacks(specs));
  std::erase_if(specs, lacks(checkpoint.tensors()));
  return dropped;
}

/// What a run may keep that the one before did not, or the other way round.
struct Kept {
  bool (*has)(const results::TensorSpec& spec);
  const char* begins;   ///< said where the checkpoint has none
  const char* dropped;  ///< said where the run has none
};
constexpr Kept kKept[] = {
    {[](const results::TensorSpec& spec) { return spec.name == layers::kRunningNorm; },
     "# the checkpoint has no mean of gradient norms: it begins anew (optim.spike_factor)",
     "# the checkpoint's mean of gradient norms is dropped: no spike is skipped any more "
     "(optim.spike_factor)"},
    {[](const results::TensorSpec& spec) { return layers::is_average(spec.name); },
     "# the checkpoint has no average of weights: it begins at its weights (optim.ema_decay)",
     "# the checkpoint's average of weights is dropped (optim.ema_decay)"}};

/// Requires that a checkpoint holds what a run has, but what it may keep or not: of that what the
/// file lacks is not loaded.
/// @param dropped what the file may have besides  @return what is said of that
std::vector<std::string> match_kept(const results::Checkpoint& checkpoint,
                                    std::vector<results::TensorSpec>& specs,
                                    std::vector<results::TensorSpec> dropped) {
  std::vector<std::string> said;
  for (const Kept& kept : kKept) {
    const bool has = std::ranges::any_of(checkpoint.tensors(), kept.has);
    const bool wants = std::ranges::any_of(specs, kept.has);
    if (has == wants) continue;
    said.emplace_back(wants ? kept.begins : kept.dropped);
    std::erase_if(specs, kept.has);
    std::ranges::copy_if(checkpoint.tensors(), std::back_inserter(dropped), kept.has);
  }
  dropped.insert(dropped.end(), specs.begin(), specs.end());
  checkpoint.require(dropped);
  return said;
}

/// False for a key of the schedule of learning rates that neither deck's schedule reads, or of an
/// optimizer that neither has.
bool is_read(std::string_view key, const inputs::Deck& one, const inputs::Deck& other) {
  using layers::LearningRate;
  using Shape = LearningRate::Shape;
  const auto either = [&](auto&& reads) {
    return reads(inputs::read(one, &LearningRate::shape)) ||
           reads(inputs::read(other, &LearningRate::shape));
  };
  if (key == inputs::key(&LearningRate::wsd_decay_steps))
    return either([](Shape shape) { return shape == Shape::wsd; });
  if (key == inputs::key(&LearningRate::decay_steps) || key == inputs::key(&LearningRate::min_lr))
    return either([](Shape shape) { return shape != Shape::constant; });
  return std::ranges::all_of(layers::kOptimizers, [&](const layers::Optimizer* optimizer) {
    const auto has = [&](const inputs::Deck& deck) {
      return &inputs::read<layers::OptimizerChoice>(deck).row() == optimizer;
    };
    return !key.starts_with(fmt::format("optim.{}_", optimizer->name)) || has(one) || has(other);
  });
}

}  // namespace

Checkpointing::Checkpointing(const inputs::Deck& deck, const parallel::Communicator& world,
                             std::string data_digest, Use use)
    : world_(world),
      use_(use),
      directory_name_(inputs::read(deck, &forecast::CheckpointConfig::directory)),
      resume_(inputs::read(deck, &forecast::CheckpointConfig::resume)),
      deck_text_(deck.text()),
      data_digest_(std::move(data_digest)),
      interval_(inputs::read(deck, &forecast::CheckpointConfig::interval)),
      interval_s_(60 * inputs::read(deck, &forecast::CheckpointConfig::interval_minutes)),
      last_s_(results::steady_seconds()),
      directory_(directory_name_,
                 {.last = inputs::read(deck, &forecast::CheckpointConfig::keep_last),
                  .every = inputs::read(deck, &forecast::CheckpointConfig::keep_every)}),
      may_put_off_(inputs::read(deck, &forecast::CheckpointConfig::may_put_off)) {
  if (enabled() && use == Use::train) claim();
  found_ = find(deck);
  if (found_.empty()) return;
  if (StartWeights::are_at(found_)) {
    weights_.emplace(deck, found_);
    for (const std::string& what : weights_->changes()) changes_.push_back("# changed: " + what);
    return;
  }
  const results::Checkpoint checkpoint(found_);
  first_step_ = checkpoint.state().step;
  tokens_seen_ = tokens_of(checkpoint.state());
  from_ = {.checkpoint = results::without_folders(found_),
           .step = first_step_,
           .seal = checkpoint.digest(),
           .run = run_of(checkpoint.state())};
  look_for_changes(deck, checkpoint);
  const std::int64_t last = inputs::read(deck, &inputs::RunConfig::steps);
  if (use == Use::train && first_step_ > last)
    execution::throw_usage("{}: checkpoint {} has done {} steps already",
                           inputs::cite(deck, &inputs::RunConfig::steps), found_, first_step_);
}

/// Keys that change the numbers and differ: "optim.lr = 0.02 (command line), the checkpoint has
/// 0.01". An evaluation computes what the model says, on any data.
std::vector<std::string> Checkpointing::changed_keys(const inputs::Deck& deck,
                                                     const results::Checkpoint& found) const {
  const inputs::Deck saved = inputs::Deck::parse_stored(found.state().deck, found.path().string());
  std::vector<std::string> keys;
  for (const inputs::Deck::Row& row : deck.rows()) {
    const bool counts = use_ == Use::train
                            ? is_read(row.key, saved, deck)
                            : row.parameter.section() == "model" ||
                                  row.key == inputs::key(&inputs::TrainConfig::dtype);
    if (row.parameter.numerics && counts && saved.value(row.key) != row.value)
      keys.push_back(fmt::format("{}, the checkpoint has {}", deck.cite(row.key),
                                 inputs::to_toml(saved.value(row.key))));
  }
  return keys;
}

std::vector<std::string> Checkpointing::changed_data(const inputs::Deck& deck,
                                                     const results::Checkpoint& found) const {
  std::vector<std::string> changed;
  if (use_ == Use::evaluate) return changed;
  const std::string saved = results::text_value(found.state(), "data.digest");
  if (saved != data_digest_)
    changed.push_back(fmt::format("other data (digest {}) than {} (digest {})", saved,
                                  inputs::cite(deck, &inputs::DataConfig::path), data_digest_));
  const std::int64_t seed = results::integer_value(found.state(), "loader.seed");
  if (seed != inputs::read(deck, &inputs::RunConfig::seed))
    changed.push_back(fmt::format("another order of samples (loader.seed {}) than {}", seed,
                                  inputs::cite(deck, &inputs::RunConfig::seed)));
  return changed;
}

void Checkpointing::look_for_changes(const inputs::Deck& deck, const results::Checkpoint& found) {
  const std::vector<std::string> keys = changed_keys(deck, found), data = changed_data(deck, found);
  const inputs::Deck saved = inputs::Deck::parse_stored(found.state().deck, found.path().string());
  other_optimizer_ = inputs::read(saved, &layers::OptimizerChoice::rule) !=
                     inputs::read(deck, &layers::OptimizerChoice::rule);
  if (inputs::read(deck, &forecast::CheckpointConfig::allow_changes)) {
    for (const std::string& key : keys) changes_.push_back("# changed: " + key);
    for (const std::string& what : data)
      changes_.push_back("# changed: the checkpoint has " + what);
    if (other_optimizer_)
      changes_.push_back(
          "# changed: states that the checkpoint's optimizer does not have begin at zero");
    return;
  }
  if (!keys.empty())
    execution::throw_usage(
        "checkpoint {} belongs to a deck that computes something else; change it back, or say "
        "checkpoint.allow_changes=true:\n  {}",
        found.path().string(), fmt::join(keys, "\n  "));
  if (!data.empty())
    execution::throw_usage(
        "checkpoint {} has {}; give what it has, or say checkpoint.allow_changes=true",
        found.path().string(), fmt::join(data, ", "));
}

bool Checkpointing::due(std::int64_t step) const {
  return enabled() && interval_ > 0 && step % interval_ == 0;
}

bool Checkpointing::due_by_clock() const {
  if (!enabled() || world_.rank() != 0) return false;
  if (put_off_) return !job_;
  return interval_s_ > 0 && results::steady_seconds() - last_s_ >= interval_s_;
}

/// Ranks that see another folder than rank 0 would find out when they write.
void Checkpointing::claim() {
  if (world_.rank() == 0) directory_.claim();
  if (world_.size() == 1) return;
  const std::string mark = world_.broadcast(world_.rank() == 0 ? directory_.mark() : "");
  if (world_.rank() != 0) directory_.require_mark(mark);
}

std::string Checkpointing::find(const inputs::Deck& deck) const {
  if (resume_ == "never") return {};
  if (resume_ == "auto") return world_.broadcast(find_latest());
  std::error_code ignored;
  const bool folder = resume_.starts_with("hf:") && resume_ != "hf:";
  if (!folder && !std::filesystem::is_regular_file(resume_, ignored))
    execution::throw_usage(
        "{}: {}; allowed: \"auto\", \"never\", the path of a checkpoint, or hf: and a folder",
        inputs::cite(deck, &forecast::CheckpointConfig::resume),
        resume_.empty() ? "is empty" : "is no checkpoint");
  if (StartWeights::are_at(resume_)) return resume_;
  SharedVerification verification(world_);
  if (world_.rank() == 0) verification.verify(resume_);
  return resume_;
}

/// On rank 0; the others verify what it looks at.
std::string Checkpointing::find_latest() const {
  if (!enabled()) return {};
  SharedVerification verification(world_);
  if (world_.rank() != 0) return {};
  const results::CheckpointDirectory::Found found =
      directory_.latest([&](const std::filesystem::path& path) { verification.verify(path); });
  if (!found.path && !found.skipped.empty())
    execution::throw_usage(
        "checkpoint.directory = \"{}\": no checkpoint in it is whole ({}); start anew with "
        "checkpoint.resume=never",
        directory_name_, fmt::join(found.skipped, "; "));
  for (const std::string& why : found.skipped)
    execution::print_remark(fmt::format("# warning: {}", why));
  if (!found.skipped.empty())
    execution::print_remark(
        fmt::format("# warning: resumed from {} instead", found.path->string()));
  return found.path ? found.path->string() : std::string();
}

std::vector<std::string> Checkpointing::resume(Trainer& trainer, inputs::Loader* loader) const {
  if (found_.empty()) return {};
  const WholeTensors tensors(trainer, world_);
  if (weights_) {
    weights_->load(tensors);
    return {};
  }
  const results::Checkpoint checkpoint(found_);
  std::vector<results::TensorSpec> specs = saved(tensors);
  std::vector<std::string> said;
  if (trainer.plan().options().state.weights_only)
    checkpoint.require(specs, true);
  else
    said = match_kept(
        checkpoint, specs,
        other_optimizer_ ? match_states(checkpoint, specs) : std::vector<results::TensorSpec>{});
  load_parts(checkpoint, specs, tensors, trainer.device(),
             results::file_threads(parallel::cores_of_rank(world_)));
  if (std::ranges::none_of(specs, kKept[1].has)) {
    if (loader == nullptr && trainer.plan().ema_exchange() != nullptr)
      execution::throw_usage("{} has no averages of weights, which {} evaluates", found_,
                             inputs::key(&inputs::EvalConfig::ema));
    if (const auto averages = average_targets(tensors, checkpoint.tensors()); !averages.empty())
      checkpoint.load(averages, true);
  }
  if (loader == nullptr) return said;
  const results::CheckpointState& state = checkpoint.state();
  loader->seek({static_cast<std::uint64_t>(results::integer_value(state, "loader.seed")),
                results::integer_value(state, "loader.epoch"),
                results::integer_value(state, "loader.sample")});
  return said;
}

void Checkpointing::load_averages(Trainer& trainer) const {
  if (found_.empty() || weights_)
    execution::throw_usage("--weights ema: {} no averages of weights",
                           found_.empty() ? "initial weights have" : found_ + " has");
  const WholeTensors tensors(trainer, world_);
  const results::Checkpoint checkpoint(found_);
  checkpoint.load(averaged_targets(tensors, checkpoint.tensors(), found_), true);
}

forecast::CheckpointMemory Checkpointing::memory(const inputs::Deck& deck,
                                                 const forecast::TrainerPlan& plan,
                                                 std::size_t left) const {
  if (!enabled()) return {};
  const forecast::CopyChoice mine = possible_copies(deck, plan, left);
  const forecast::CopyChoice all{.device = world_.max(mine.device ? 0 : 1) == 0,
                                 .host = world_.max(mine.host ? 0 : 1) == 0};
  return {.saves = true, .copy = all.place(), .copy_bytes = plan.state_copy_bytes()};
}

void Checkpointing::prepare(Trainer& trainer, forecast::CopyPlace copy, std::string run) {
  run_ = std::move(run);
  if (!enabled()) return;
  const WholeTensors tensors(trainer, world_);
  specs_ = saved(tensors);
  std::vector<CheckpointWriter::Part> parts;
  for (const results::TensorSpec& spec : specs_)
    for (const TensorPart& part : tensors.spoken_parts(spec.name)) parts.push_back({spec, part});
  device_ = &trainer.device();
  queue_ = &device_->queue(trainer.plan().training().front()->plan.queues.front());
  writer_ = std::make_unique<CheckpointWriter>(trainer.device().backend(), std::move(parts), copy,
                                               writing_threads(world_));
  STOWAGE_ASSERT(writer_->copy_bytes() == trainer.plan().state_copy_bytes(),
                 "a copy of the state has {} bytes, {} were planned", writer_->copy_bytes(),
                 trainer.plan().state_copy_bytes());
}

/// Rank 0 makes the file; the others learn where what belongs.
std::unique_ptr<results::CheckpointDraft> Checkpointing::begin(const inputs::Loader& loader,
                                                               const Reached& reached,
                                                               CheckpointJob::Task& task) const {
  std::unique_ptr<results::CheckpointDraft> draft;
  std::string places;
  if (world_.rank() == 0) {
    const inputs::LoaderPosition position = loader.position();
    draft = directory_.begin(
        {.step = reached.step,
         .values = {{"loader.seed", static_cast<std::int64_t>(position.seed)},
                    {"loader.epoch", position.epoch},
                    {"loader.sample", position.sample},
                    {std::string(kTokensSeen), static_cast<std::int64_t>(reached.tokens_seen)},
                    {"data.digest", data_digest_},
                    {std::string(results::kRunUuid), run_}},
         .deck = deck_text_},
        specs_);
    if (world_.size() > 1)
      results::SumsFile::make(sums_path(draft->part()), world_.size(), specs_.size());
    places = fmt::format("{} {}", fmt::join(draft->offsets(), " "), draft->part().string());
  }
  std::istringstream given(world_.broadcast(places));
  task.step = reached.step;
  task.rank = world_.rank();
  task.ranks = world_.size();
  task.offsets.resize(specs_.size());
  for (std::int64_t& offset : task.offsets) given >> offset;
  std::string path;
  std::getline(given >> std::ws, path, '\0');
  task.part = path;
  return draft;
}

bool Checkpointing::save(const inputs::Loader& loader, const Reached& reached, Pace pace,
                         double since_s) {
  if (may_put_off_ && pace == Pace::overlapping && world_.max(job_ && !job_->ended() ? 1 : 0) > 0) {
    put_off_ = true;
    return false;
  }
  settle();
  put_off_ = false;
  overlapping_ = pace == Pace::overlapping && writer_->copy() != forecast::CopyPlace::none;
  since_s_ = since_s;
  if (overlapping_) {
    device_->take_turn(this, *queue_);  // a step may have left copies of states under way
    writer_->take(*queue_);             // the device works while the file is made
  } else {
    device_->synchronize();
  }
  CheckpointJob::Task task;
  std::unique_ptr<results::CheckpointDraft> draft = begin(loader, reached, task);
  task.as_it_is = !overlapping_;
  job_ = std::make_unique<CheckpointJob>(std::move(task), std::move(draft), *writer_, directory_);
  if (!overlapping_) job_->wait();
  last_s_ = results::steady_seconds();
  if (!overlapping_) settle();
  return true;
}

void Checkpointing::abandon() {
  job_.reset();
  writer_.reset();
}

void Checkpointing::look() {
  if (job_ && job_->ended()) end_job();
}

void Checkpointing::settle() {
  if (job_) end_job();
  world_.barrier();
}

void Checkpointing::end_job() {
  CheckpointJob::Written written = job_->finish();
  written.stall_s = (overlapping_ ? writer_->taken().time_s() : last_s_) - since_s_;
  written.overlapping = overlapping_;
  job_.reset();
  if (world_.rank() == 0) written_.push_back(written);
}

std::vector<CheckpointJob::Written> Checkpointing::written() { return std::exchange(written_, {}); }

}  // namespace stowage::run
