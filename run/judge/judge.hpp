#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "inputs/deck/deck.hpp"
#include "results/verdict.hpp"
#include "run/judge/gradient_slice.hpp"
#include "run/step/loop.hpp"

namespace stowage::run {

/// Values that a run leaves behind, by step. A step that changed nothing says nothing of what the
/// run became: its loss and norm, which may not be finite, count in no check but that of skipped
/// steps.
struct History {
  std::vector<StepReport> steps;
  struct EvaluationAt {
    std::int64_t step;
    double loss, accuracy;
    double tokens = 0, targets = 0;  ///< that it read, and of them those that are counted
  };
  std::vector<EvaluationAt> evaluations;
  std::optional<GradientSlice::Finding> gradients;  ///< if they were compared with differences
  std::optional<bool> replayed;  ///< the first step done twice left the same bits; if it was
  bool all_before = false;       ///< another run has done all steps: only their end is done here
  bool copies = false;           ///< several ranks hold the same tensors, which the digest compares
  double differing = 0;          ///< of these, not the same to the bit
  double pairs = 0;  ///< (query, key) pairs within documents of a step, all ranks, on average
  double executed_flops = 0;  ///< of a step, all ranks
  double energy_j = 0;        ///< of all ranks' GPUs, over these steps; NaN if nobody says
};

/// Steps whose times count: all undisturbed ones but the first, which warm caches and threads, a
/// tenth and at most ten. If there are none, the last step.
std::vector<StepReport> timed_steps(const History& history);
/// Steps that changed nothing.
std::int64_t skipped_steps(const History& history);
/// A loss in the last tenth of the steps that changed something, at least in one: the mean, or NaN.
double tail_mean(const History& history, double StepReport::*loss);

/// The checks that every run must pass, and, of a complete run, those that the deck asks for.
/// `validate.most_skipped_steps` steps may have changed nothing, never all.
results::Verdict judge(const inputs::Deck& deck, const History& history, bool complete);
/// Those of a run that only evaluates.
results::Verdict judge_evaluation(const inputs::Deck& deck, const History& history);

}  // namespace stowage::run
