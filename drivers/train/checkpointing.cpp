#include "drivers/train/checkpointing.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <cstdio>
#include <vector>

#include "drivers/common/whole_tensors.hpp"
#include "execution/error.hpp"
#include "results/progress.hpp"

namespace stowage::drivers {
namespace {

/// Calls `visit(spec)` for every tensor that a checkpoint holds.
template <class Visit>
void for_each_saved(const WholeTensors& tensors, Visit&& visit) {
  for (const std::string& name : tensors.names()) {
    const execution::TensorInfo& info = tensors.info(name);
    if (info.lifetime != execution::Lifetime::gradient)
      visit(results::TensorSpec{name, info.buffers[0].dtype, info.buffers[0].shape});
  }
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
                                   .every = deck.get<std::int64_t>("checkpoint.keep_every")}) {
  if (enabled() && use == Use::train && world_.rank() == 0) directory_.claim();
  found_ = find();
  if (found_.empty()) return;
  if (StartWeights::are_at(found_)) {
    weights_.emplace(deck, found_);
    return;
  }
  const results::Checkpoint checkpoint(found_);
  first_step_ = checkpoint.state().step;
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
  return enabled() && interval_s_ > 0 && world_.rank() == 0 &&
         results::steady_seconds() - last_s_ >= interval_s_;
}

std::string Checkpointing::find() const {
  if (resume_ == "never") return {};
  if (resume_ != "auto") return resume_;
  std::string path;
  if (enabled() && world_.rank() == 0) {
    const results::CheckpointDirectory::Found found = directory_.latest();
    if (!found.path && !found.skipped.empty())
      execution::throw_usage(
          "checkpoint.directory = \"{}\": no checkpoint in it is whole ({}); start anew with "
          "checkpoint.resume=never",
          directory_name_, fmt::join(found.skipped, "; "));
    for (const std::string& why : found.skipped) fmt::print(stderr, "# warning: {}\n", why);
    if (!found.skipped.empty())
      fmt::print(stderr, "# warning: resumed from {} instead\n", found.path->string());
    if (found.path) path = found.path->string();
  }
  return world_.broadcast(path);
}

void Checkpointing::resume(layers::Trainer& trainer, inputs::Loader& loader) const {
  if (found_.empty()) return;
  const WholeTensors tensors(trainer, world_);
  if (weights_) {
    weights_->load(tensors);
    return;
  }
  const results::Checkpoint checkpoint(found_);
  std::vector<results::TensorTarget> targets;
  for_each_saved(tensors, [&](const results::TensorSpec& spec) {
    targets.push_back(
        {spec, [&tensors, name = spec.name](std::size_t offset, std::span<const std::byte> from) {
           tensors.write(name, offset, from);
         }});
  });
  checkpoint.load(targets);
  const results::CheckpointState& state = checkpoint.state();
  loader.seek({static_cast<std::uint64_t>(results::integer_value(state, "loader.seed")),
               results::integer_value(state, "loader.epoch"),
               results::integer_value(state, "loader.sample")});
}

std::int64_t Checkpointing::save(layers::Trainer& trainer, const inputs::Loader& loader,
                                 std::int64_t step) {
  std::int64_t bytes = 0;
  const WholeTensors tensors(trainer, world_);
  if (world_.rank() == 0) {
    std::vector<results::TensorSource> sources;
    std::vector<std::byte> whole;  // of the tensor at work: the file takes one after the other
    for_each_saved(tensors, [&](const results::TensorSpec& spec) {
      sources.push_back({spec, [&, name = spec.name](std::size_t offset, std::span<std::byte> to) {
                           if (offset == 0) whole = tensors.gather(name);
                           std::copy_n(whole.begin() + static_cast<std::ptrdiff_t>(offset),
                                       to.size(), to.begin());
                         }});
    });
    const inputs::LoaderPosition position = loader.position();
    bytes = directory_.save({.step = step,
                             .values = {{"loader.seed", static_cast<std::int64_t>(position.seed)},
                                        {"loader.epoch", position.epoch},
                                        {"loader.sample", position.sample},
                                        {"data.digest", data_digest_}},
                             .deck = deck_text_},
                            sources);
  } else {
    for_each_saved(tensors,
                   [&](const results::TensorSpec& spec) { (void)tensors.gather(spec.name); });
  }
  world_.barrier();
  last_s_ = results::steady_seconds();
  return bytes;
}

}  // namespace stowage::drivers
