#include "run/generate/generator.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "execution/error.hpp"
#include "execution/philox.hpp"
#include "forecast/plan/options.hpp"
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

forecast::TrainerOptions generation_options(const inputs::Deck& deck, std::int64_t sequences,
                                            std::int64_t window, parallel::RankOrder order) {
  const layers::Sharing alone;
  forecast::TrainerOptions options = forecast::trainer_options(
      deck, {.capacities = {sequences}, .evaluates = true, .logits = layers::Logits::chosen}, 1,
      alone.ranks, order);
  options.model.virtual_stages = 1;
  options.model.products = {};  // a scale in 8 bits follows all rows: other prompts and padding
  options.step.sequence = window;
  options.step.tokens = sequences * window;
  options.sharing = alone;
  options.state.host = {};
  options.state.weights_only = true;
  return options;
}

Generator::Generator(Trainer& trainer)
    : recorded_(trainer.evaluation(trainer.plan().options().capacities.back()).recorded),
      executor_(trainer.evaluation(trainer.plan().options().capacities.back()).executor),
      vocabulary_(trainer.plan().options().model.vocabulary) {
  STOWAGE_ASSERT(recorded_.logit_rows, "the program leaves no chosen logits behind");
}

std::span<const double> Generator::logits(std::span<const Tokens> sequences) {
  const layers::StepShape& shape = recorded_.shape;
  STOWAGE_ASSERT(std::ssize(sequences) == shape.capacity, "{} sequences for a program of {}",
                 sequences.size(), shape.capacity);
  Tokens tokens(static_cast<std::size_t>(shape.tokens), 0), starts = {0}, rows;
  for (const Tokens& sequence : sequences) {
    STOWAGE_ASSERT(!sequence.empty() && std::ssize(sequence) <= shape.sequence,
                   "a sequence of {} tokens in a window of {}", sequence.size(), shape.sequence);
    const std::int32_t first = starts.back();
    std::ranges::copy(sequence, tokens.begin() + first);
    rows.push_back(first + static_cast<std::int32_t>(sequence.size()) - 1);
    starts.push_back(first + static_cast<std::int32_t>(shape.sequence));
  }
  stage(executor_, recorded_.inputs.tokens, tokens);
  stage(executor_, recorded_.inputs.targets, Tokens(tokens.size(), -1));
  stage(executor_, recorded_.inputs.cu_seqlens, starts);
  stage(executor_, recorded_.logit_rows, rows);
  executor_.step();
  logits_ = read_values(executor_, recorded_.logits, 0);
  const auto wrong =
      std::ranges::find_if(logits_, [](double logit) { return !std::isfinite(logit); });
  if (wrong != logits_.end())
    throw execution::Error(execution::Exit::runtime,
                           fmt::format("prompt {}: the model's logits are not finite",
                                       (wrong - logits_.begin()) / vocabulary_ + 1));
  return logits_;
}

std::vector<Continuation> Generator::generate(std::vector<Tokens> prompts, std::int64_t count,
                                              const Sampling& sampling) {
  std::vector<Continuation> made(prompts.size());
  for (std::int64_t step = 0; step < count; ++step) {
    const std::span<const double> all = logits(prompts);
    for (std::size_t i = 0; i < prompts.size(); ++i) {
      const auto own = all.subspan(i * static_cast<std::size_t>(vocabulary_),
                                   static_cast<std::size_t>(vocabulary_));
      const std::int32_t token = sample(
          own, sampling, execution::uniform(sampling.seed, i, static_cast<std::uint64_t>(step)));
      made[i].tokens.push_back(token);
      made[i].log_probabilities.push_back(log_probability(own, token));
      prompts[i].push_back(token);
    }
  }
  return made;
}

}  // namespace stowage::run
