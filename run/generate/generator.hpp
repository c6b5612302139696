#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "forecast/plan/trainer_plan.hpp"
#include "inputs/deck/deck.hpp"
#include "parallel/proof/joint_proof.hpp"
#include "run/generate/sampling.hpp"
#include "run/step/trainer.hpp"

namespace stowage::run {

using Tokens = std::vector<std::int32_t>;

/// Options of a trainer that only generates, on one rank: weights without gradients and moments,
/// and one evaluation program of `sequences` documents of `window` positions each, which leaves the
/// logits of one position of each behind.
/// @param order of communication: that of the machine
forecast::TrainerOptions generation_options(const inputs::Deck& deck, std::int64_t sequences,
                                            std::int64_t window, parallel::RankOrder order);

/// A prompt's further tokens.
struct Continuation {
  Tokens tokens;
  std::vector<double> log_probabilities;  ///< of each by the model alone, in nats
};

/// Continues sequences token by token. A sequence stands at the start of its document; the rest of
/// the document is token 0, which no position before it sees. Each token costs a forward pass over
/// all windows.
class Generator {
 public:
  /// @param trainer of generation_options(), with its weights; outlives this
  explicit Generator(Trainer& trainer);

  /// (sequences, V) logits of the token that follows each. They hold until the next call.
  /// @param sequences as many as the program has, of 1 to `window` tokens each
  /// @throws Error (exit 4) if one is not finite
  std::span<const double> logits(std::span<const Tokens> sequences);

  /// `count` further tokens of each prompt. What is drawn for a prompt follows from the seed, the
  /// place of the prompt and its logits.
  std::vector<Continuation> generate(std::vector<Tokens> prompts, std::int64_t count,
                                     const Sampling& sampling);

 private:
  const layers::EvaluationProgram& recorded_;
  execution::Executor& executor_;
  std::int64_t vocabulary_;
  std::vector<double> logits_;
};

}  // namespace stowage::run
