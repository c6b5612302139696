#pragma once

#include <cstddef>
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
/// what is kept of each sequence, and one program, of one more token of each.
/// @param order of communication: that of the machine
forecast::TrainerOptions generation_options(const inputs::Deck& deck,
                                            const layers::DecodeShape& shape,
                                            parallel::RankOrder order);

/// A prompt's further tokens.
struct Continuation {
  Tokens tokens;
  std::vector<double> log_probabilities;  ///< of each by the model alone, in nats
};

/// Continues sequences token by token, all at the same position. Tokens of a prompt go through the
/// same program as those that are drawn behind it.
class Generator {
 public:
  /// @param trainer of generation_options(), with its weights; outlives this
  explicit Generator(Trainer& trainer);

  /// The next token is the first of its sequence.
  void begin() { position_ = 0; }
  /// Takes one more token of each sequence, of which there are at most `window`.
  void advance(const Tokens& tokens);
  /// (V) logits of the token behind a sequence, copied from the device.
  std::vector<double> logits(std::size_t sequence) const;

  /// `count` further tokens of each prompt. What is drawn for a prompt follows from the seed, the
  /// place of the prompt and its logits. The host sees logits only of tokens that are drawn.
  /// @param prompts as many as the program has sequences; with `count` at most `window` tokens
  /// @throws Error (exit 4) if a logit that a token is chosen by is not finite
  std::vector<Continuation> generate(const std::vector<Tokens>& prompts, std::int64_t count,
                                     const Sampling& sampling);

 private:
  /// The next token of a sequence, and its log-probability.
  struct Choice {
    std::int32_t token;
    double log_probability;
  };
  /// The likeliest one of each sequence, chosen on the device.
  std::vector<Choice> likeliest_of_all() const;
  /// Drawn from the logits of those that `wanted` names.
  std::vector<Choice> draw(const std::vector<char>& wanted, const std::vector<Continuation>& made,
                           const Sampling& sampling) const;

  Trainer& trainer_;
  const layers::DecodeProgram& recorded_;
  execution::Executor& executor_;
  std::int64_t position_ = 0;
};

}  // namespace stowage::run
