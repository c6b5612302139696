#include "drivers/train/checkpointing.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <cstdio>
#include <mutex>
#include <optional>
#include <span>
#include <sstream>
#include <utility>
#include <vector>

#include "drivers/common/whole_tensors.hpp"
#include "drivers/train/shared_verification.hpp"
#include "execution/error.hpp"
#include "results/file_threads.hpp"
#include "results/progress.hpp"

namespace stowage::drivers {
namespace {

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
  return {.beside = results::file_threads(cores / 4), .alone = results::file_threads(cores)};
}

/// The run that has written a checkpoint; empty if that does not say.
std::string run_of(const results::CheckpointState& state) {
  const auto named = std::ranges::find(state.values, results::kRunUuid, &results::Field::name);
  return named == state.values.end() ? "" : results::text_value(state, results::kRunUuid);
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

/// Requires that a checkpoint holds what a run has, but the running norm of a run that skips spikes
/// when the one before did not, or the other way round: what the file lacks is not loaded.
/// @return what is said of that
std::string match_running_norm(const results::Checkpoint& checkpoint,
                               std::vector<results::TensorSpec>& specs) {
  const auto is_norm = [](const results::TensorSpec& spec) {
    return spec.name == layers::kRunningNorm;
  };
  const auto there = std::ranges::find_if(checkpoint.tensors(), is_norm);
  const bool has = there != checkpoint.tensors().end();
  const bool wants = std::erase_if(specs, is_norm) > 0;
  std::vector<results::TensorSpec> both = specs;
  if (has) both.push_back(*there);
  checkpoint.require(both);
  if (has && wants) specs.push_back(*there);
  if (has == wants) return {};
  return wants
             ? "# the checkpoint has no mean of gradient norms: it begins anew "
               "(optim.spike_factor)"
             : "# the checkpoint's mean of gradient norms is dropped: no spike is skipped any more "
               "(optim.spike_factor)";
}

}  // namespace

Checkpointing::Checkpointing(const inputs::Deck& deck, const parallel::Communicator& world,
                             std::string data_digest, Use use)
    : world_(world),
      directory_name_(deck.get<std::string>("checkpoint.directory")),
      resume_(deck.get<std::string>("checkpoint.resume")),
      deck_text_(deck.text()),
      data_digest_(std::move(data_digest)),
      interval_(deck.get<std::int64_t>("checkpoint.interval")),
      interval_s_(60 * deck.get<double>("checkpoint.interval_minutes")),
      last_s_(results::steady_seconds()),
      directory_(directory_name_, {.last = deck.get<std::int64_t>("checkpoint.keep_last"),
                                   .every = deck.get<std::int64_t>("checkpoint.keep_every")}),
      may_put_off_(deck.get<std::string>("checkpoint.busy") == "put_off") {
  if (enabled() && use == Use::train) claim();
  found_ = find(deck);
  if (found_.empty()) return;
  if (StartWeights::are_at(found_)) {
    weights_.emplace(deck, found_);
    return;
  }
  const results::Checkpoint checkpoint(found_);
  first_step_ = checkpoint.state().step;
  from_ = {.checkpoint = results::without_folders(found_),
           .step = first_step_,
           .seal = checkpoint.digest(),
           .run = run_of(checkpoint.state())};
  if (!deck.get<bool>("checkpoint.allow_changes")) {
    require_same_numerics(deck, checkpoint);
    require_same_data(deck, checkpoint);
  }
  const std::int64_t last = deck.get<std::int64_t>("run.steps");
  if (use == Use::train && first_step_ >= last)
    execution::throw_usage("{}: checkpoint {} has done {} steps already; nothing is left to do",
                           deck.cite("run.steps"), found_, first_step_);
}

void Checkpointing::require_same_numerics(const inputs::Deck& deck,
                                          const results::Checkpoint& found) const {
  const inputs::Deck saved =
      inputs::Deck::parse_stored(found.state().deck, found.path().string(), {}, nullptr);
  if (saved.numerics_sha256() == deck.numerics_sha256()) return;
  std::string keys;
  for (const inputs::Deck::Row& row : deck.rows())
    if (row.parameter.numerics && saved.value(row.key) != row.value)
      keys += fmt::format("\n  {}, the checkpoint has {}", deck.cite(row.key),
                          inputs::to_toml(saved.value(row.key)));
  execution::throw_usage(
      "checkpoint {} belongs to a deck that computes something else; change it back, or say "
      "checkpoint.allow_changes=true:{}",
      found.path().string(), keys);
}

void Checkpointing::require_same_data(const inputs::Deck& deck,
                                      const results::Checkpoint& found) const {
  const std::string saved = results::text_value(found.state(), "data.digest");
  if (saved != data_digest_)
    execution::throw_usage(
        "checkpoint {} belongs to other data (digest {}) than {} (digest {}); give that data, or "
        "say checkpoint.allow_changes=true",
        found.path().string(), saved, deck.cite("data.path"), data_digest_);
  const std::int64_t seed = results::integer_value(found.state(), "loader.seed");
  if (seed != deck.get<std::int64_t>("run.seed"))
    execution::throw_usage("checkpoint {} has another order of samples (loader.seed {}) than {}",
                           found.path().string(), seed, deck.cite("run.seed"));
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
  if (resume_.empty() || resume_ == "hf:" || std::filesystem::is_directory(resume_, ignored))
    execution::throw_usage(
        "{}: {}; allowed: \"auto\", \"never\", the path of a checkpoint, or hf: and a folder",
        deck.cite("checkpoint.resume"), resume_.empty() ? "is empty" : "is no checkpoint");
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
  for (const std::string& why : found.skipped) fmt::print(stderr, "# warning: {}\n", why);
  if (!found.skipped.empty())
    fmt::print(stderr, "# warning: resumed from {} instead\n", found.path->string());
  return found.path ? found.path->string() : std::string();
}

std::string Checkpointing::resume(training::Trainer& trainer, inputs::Loader& loader) const {
  if (found_.empty()) return {};
  const WholeTensors tensors(trainer, world_);
  if (weights_) {
    weights_->load(tensors);
    return {};
  }
  const results::Checkpoint checkpoint(found_);
  std::vector<results::TensorSpec> specs = saved(tensors);
  const std::string change = match_running_norm(checkpoint, specs);
  load_parts(checkpoint, specs, tensors, trainer.device(),
             results::file_threads(parallel::cores_of_rank(world_)));
  const results::CheckpointState& state = checkpoint.state();
  loader.seek({static_cast<std::uint64_t>(results::integer_value(state, "loader.seed")),
               results::integer_value(state, "loader.epoch"),
               results::integer_value(state, "loader.sample")});
  return change;
}

CheckpointMemory Checkpointing::memory(const inputs::Deck& deck, const training::TrainerPlan& plan,
                                       std::size_t left) const {
  if (!enabled()) return {};
  const CopyChoice mine = possible_copies(deck, plan, left);
  const CopyChoice all{.device = world_.max(mine.device ? 0 : 1) == 0,
                       .host = world_.max(mine.host ? 0 : 1) == 0};
  return {.saves = true, .copy = all.place(), .copy_bytes = plan.state_copy_bytes()};
}

void Checkpointing::prepare(training::Trainer& trainer, CopyPlace copy, std::string run) {
  run_ = std::move(run);
  if (!enabled()) return;
  const WholeTensors tensors(trainer, world_);
  specs_ = saved(tensors);
  std::vector<CheckpointWriter::Part> parts;
  for (const results::TensorSpec& spec : specs_)
    for (const TensorPart& part : tensors.spoken_parts(spec.name)) parts.push_back({spec, part});
  queue_ = &trainer.device().queue(trainer.plan().training().front()->plan.queues.front());
  writer_ = std::make_unique<CheckpointWriter>(trainer.device().backend(), std::move(parts), copy,
                                               writing_threads(world_));
  STOWAGE_ASSERT(writer_->copy_bytes() == trainer.plan().state_copy_bytes(),
                 "a copy of the state has {} bytes, {} were planned", writer_->copy_bytes(),
                 trainer.plan().state_copy_bytes());
}

/// Rank 0 makes the file; the others learn where what belongs.
std::unique_ptr<results::CheckpointDraft> Checkpointing::begin(const inputs::Loader& loader,
                                                               std::int64_t step,
                                                               CheckpointJob::Task& task) const {
  std::unique_ptr<results::CheckpointDraft> draft;
  std::string places;
  if (world_.rank() == 0) {
    const inputs::LoaderPosition position = loader.position();
    draft = directory_.begin({.step = step,
                              .values = {{"loader.seed", static_cast<std::int64_t>(position.seed)},
                                         {"loader.epoch", position.epoch},
                                         {"loader.sample", position.sample},
                                         {"data.digest", data_digest_},
                                         {std::string(results::kRunUuid), run_}},
                              .deck = deck_text_},
                             specs_);
    if (world_.size() > 1)
      results::SumsFile::make(sums_path(draft->part()), world_.size(), specs_.size());
    places = fmt::format("{} {}", fmt::join(draft->offsets(), " "), draft->part().string());
  }
  std::istringstream given(world_.broadcast(places));
  task.step = step;
  task.rank = world_.rank();
  task.ranks = world_.size();
  task.offsets.resize(specs_.size());
  for (std::int64_t& offset : task.offsets) given >> offset;
  std::string path;
  std::getline(given >> std::ws, path, '\0');
  task.part = path;
  return draft;
}

bool Checkpointing::save(const inputs::Loader& loader, std::int64_t step, Pace pace,
                         double since_s) {
  if (may_put_off_ && pace == Pace::beside && world_.max(job_ && !job_->ended() ? 1 : 0) > 0) {
    put_off_ = true;
    return false;
  }
  settle();
  put_off_ = false;
  beside_ = pace == Pace::beside && writer_->copy() != CopyPlace::none;
  since_s_ = since_s;
  if (beside_) writer_->take(*queue_);  // the device works while the file is made
  CheckpointJob::Task task;
  std::unique_ptr<results::CheckpointDraft> draft = begin(loader, step, task);
  task.as_it_is = !beside_;
  job_ = std::make_unique<CheckpointJob>(std::move(task), std::move(draft), *writer_, directory_);
  if (!beside_) job_->wait();
  last_s_ = results::steady_seconds();
  if (!beside_) settle();
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
  written.stall_s = (beside_ ? writer_->taken().time_s() : last_s_) - since_s_;
  written.beside = beside_;
  job_.reset();
  if (world_.rank() == 0) written_.push_back(written);
}

std::vector<CheckpointJob::Written> Checkpointing::written() { return std::exchange(written_, {}); }

}  // namespace stowage::drivers
