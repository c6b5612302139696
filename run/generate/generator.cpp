#include "run/generate/generator.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <optional>
#include <utility>

#include "execution/error.hpp"
#include "execution/host_threads.hpp"
#include "execution/philox.hpp"
#include "forecast/plan/options.hpp"
#include "layers/model/head.hpp"
#include "results/file_threads.hpp"
#include "run/step/staging.hpp"

namespace stowage::run {
namespace {

void stage(execution::Executor& executor, execution::Tensor input, const Tokens& values) {
  const std::span<std::byte> slot = executor.stage(input);
  STOWAGE_ASSERT(slot.size() == values.size() * sizeof(std::int32_t), "{} bytes for {} integers",
                 slot.size(), values.size());
  std::memcpy(slot.data(), values.data(), slot.size());
}

}  // namespace

forecast::TrainerOptions generation_options(const inputs::Deck& deck,
                                            const layers::DecodeShape& shape,
                                            parallel::RankOrder order) {
  const layers::Sharing alone;
  forecast::TrainerOptions options = forecast::trainer_options(deck, {}, 1, alone.ranks, order);
  options.model.virtual_stages = 1;
  options.model.products = {};  // a scale in 8 bits follows all rows: other prompts
  options.decode = shape;
  options.planner.graphs = {.mode = offload::GraphOptions::Mode::step};
  options.sharing = alone;
  options.state.host = {};
  options.state.weights_only = true;
  return options;
}

Generator::Generator(Trainer& trainer)
    : trainer_(trainer),
      recorded_(trainer.decode().recorded),
      executor_(trainer.decode().executor) {}

void Generator::advance(const Tokens& tokens) {
  const layers::DecodeShape& shape = recorded_.shape;
  STOWAGE_ASSERT(std::ssize(tokens) == shape.sequences, "{} sequences for a program of {}",
                 tokens.size(), shape.sequences);
  STOWAGE_ASSERT(position_ < shape.window, "a token at position {} of {}", position_, shape.window);
  stage(executor_, recorded_.tokens, tokens);
  stage(executor_, recorded_.positions,
        Tokens(tokens.size(), static_cast<std::int32_t>(position_)));
  stage(executor_, recorded_.cu_seqlens, {0, static_cast<std::int32_t>(shape.sequences)});
  executor_.step();
  ++position_;
}

std::vector<double> Generator::logits(std::size_t sequence) const {
  const execution::PersistentLayout& layout = trainer_.plan().layout();
  const execution::BufferInfo& info = layout.info(layers::kLogits).buffers[0];
  std::vector<std::byte> row(info.bytes() / static_cast<std::size_t>(recorded_.shape.sequences));
  trainer_.device().read(layers::kLogits, row, sequence * row.size());
  return to_values(row, info.dtype);
}

std::vector<Generator::Choice> Generator::likeliest_of_all() const {
  const std::span<const std::byte> tokens = executor_.result(recorded_.likeliest);
  const std::vector<double> log_probabilities =
      to_values(executor_.result(recorded_.log_probabilities),
                executor_.program().info(recorded_.log_probabilities).buffers[0].dtype);
  std::vector<Choice> all;
  for (std::size_t i = 0; i < log_probabilities.size(); ++i) {
    all.push_back({0, log_probabilities[i]});
    std::memcpy(&all[i].token, tokens.data() + i * sizeof(std::int32_t), sizeof(std::int32_t));
  }
  return all;
}

std::vector<Generator::Choice> Generator::draw(const std::vector<char>& wanted,
                                               const std::vector<Continuation>& made,
                                               const Sampling& sampling) const {
  std::vector<Choice> all(wanted.size());
  std::vector<std::vector<double>> own(wanted.size());
  for (std::size_t i = 0; i < wanted.size(); ++i)
    if (wanted[i] != 0) own[i] = logits(i);
  const int threads = std::min(execution::host_threads(), static_cast<int>(wanted.size()));
  results::Turns turns(wanted.size());
  results::on_threads(threads, turns, [&](int) {
    while (const std::optional<std::size_t> i = turns.next()) {
      if (wanted[*i] == 0) continue;
      const std::uint64_t drawn = made[*i].tokens.size();
      const bool finite =
          std::ranges::all_of(own[*i], [](double logit) { return std::isfinite(logit); });
      all[*i] = {0, std::nan("")};
      if (!finite) continue;
      const std::int32_t token =
          sample(own[*i], sampling, execution::uniform(sampling.seed, *i, drawn));
      all[*i] = {token, log_probability(own[*i], token)};
    }
  });
  return all;
}

std::vector<Continuation> Generator::generate(const std::vector<Tokens>& prompts,
                                              std::int64_t count, const Sampling& sampling) {
  std::vector<Continuation> made(prompts.size());
  const auto unfinished = [&](const Continuation& one) { return std::ssize(one.tokens) < count; };
  Tokens next(prompts.size());
  std::vector<char> wanted(prompts.size());
  begin();
  while (std::ranges::any_of(made, unfinished)) {
    const auto at = static_cast<std::size_t>(position_);
    for (std::size_t i = 0; i < prompts.size(); ++i) {  // those that are done take their last again
      STOWAGE_ASSERT(!prompts[i].empty(), "prompt {} is empty", i + 1);
      if (at < prompts[i].size())
        next[i] = prompts[i][at];
      else if (!made[i].tokens.empty())
        next[i] = made[i].tokens.back();
      wanted[i] = static_cast<char>(at + 1 >= prompts[i].size() && unfinished(made[i]));
    }
    advance(next);
    if (std::ranges::count(wanted, 0) == std::ssize(wanted)) continue;
    const std::vector<Choice> choices =
        sampling.temperature == 0 ? likeliest_of_all() : draw(wanted, made, sampling);
    for (std::size_t i = 0; i < prompts.size(); ++i) {
      if (wanted[i] == 0) continue;
      if (!std::isfinite(choices[i].log_probability))
        throw execution::Error(execution::Exit::runtime,
                               fmt::format("prompt {}: the model's logits are not finite", i + 1));
      made[i].tokens.push_back(choices[i].token);
      made[i].log_probabilities.push_back(choices[i].log_probability);
    }
  }
  return made;
}

}  // namespace stowage::run
