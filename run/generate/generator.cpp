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
  options.sharing = alone;
  options.state.host = {};
  options.state.weights_only = true;
  return options;
}

Generator::Generator(Trainer& trainer)
    : recorded_(trainer.decode().recorded), executor_(trainer.decode().executor) {}

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
  behind_ = executor_.result(recorded_.logits);
}

std::vector<double> Generator::logits(std::size_t sequence) const {
  const std::size_t bytes = behind_.size() / static_cast<std::size_t>(recorded_.shape.sequences);
  return to_values(behind_.subspan(sequence * bytes, bytes),
                   executor_.program().info(recorded_.logits).buffers[0].dtype);
}

std::vector<Continuation> Generator::generate(const std::vector<Tokens>& prompts,
                                              std::int64_t count, const Sampling& sampling) {
  std::vector<Continuation> made(prompts.size());
  const auto unfinished = [&](const Continuation& one) { return std::ssize(one.tokens) < count; };
  Tokens next(prompts.size());
  const int threads = std::min(execution::host_threads(), static_cast<int>(prompts.size()));
  begin();
  while (std::ranges::any_of(made, unfinished)) {
    const auto at = static_cast<std::size_t>(position_);
    for (std::size_t i = 0; i < prompts.size(); ++i) {  // those that are done take their last again
      STOWAGE_ASSERT(!prompts[i].empty(), "prompt {} is empty", i + 1);
      if (at < prompts[i].size())
        next[i] = prompts[i][at];
      else if (!made[i].tokens.empty())
        next[i] = made[i].tokens.back();
    }
    advance(next);
    results::Turns turns(prompts.size());
    results::on_threads(threads, turns, [&](int) {
      while (const std::optional<std::size_t> i = turns.next()) {
        Continuation& one = made[*i];
        if (at + 1 < prompts[*i].size() || !unfinished(one)) continue;
        const std::vector<double> own = logits(*i);
        if (!std::ranges::all_of(own, [](double logit) { return std::isfinite(logit); }))
          throw execution::Error(
              execution::Exit::runtime,
              fmt::format("prompt {}: the model's logits are not finite", *i + 1));
        const std::int32_t token = sample(
            own, sampling, execution::uniform(sampling.seed, *i, std::uint64_t{one.tokens.size()}));
        one.log_probabilities.push_back(log_probability(own, token));
        one.tokens.push_back(token);
      }
    });
  }
  return made;
}

}  // namespace stowage::run
