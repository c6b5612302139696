#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "drivers/train/gradient_slice.hpp"
#include "drivers/train/loop.hpp"
#include "inputs/deck/deck.hpp"
#include "layers/flops.hpp"
#include "layers/trainer.hpp"
#include "results/result_set.hpp"
#include "results/verdict.hpp"

namespace stowage::drivers {

/// What one rank needs and does, for people: parameters, memory by class, flops of a step.
results::Fields facts(const inputs::Deck& deck, const std::string& backend,
                      layers::TrainerPlan& plan);
/// The same as text, for --dry-run.
std::string dry_run_text(const inputs::Deck& deck, layers::TrainerPlan& plan);

/// (query, key) pairs of a step, in the documents of this rank, as a part of those that its program
/// was recorded with: of whole sequences.
double part_of_recorded(const layers::TrainerPlan& plan, double pairs);

/// Arithmetic that one step executes on this rank, in FLOP: the program's ops, with attention
/// counted over the documents' true pairs instead of whole sequences.
/// @param pairs of a step, in the documents of this rank
double executed_flops(const layers::TrainerPlan& plan, double pairs);

/// Parameters of the model.
std::int64_t parameter_count(const layers::TrainerPlan& plan);

/// Values that a run leaves behind, by step.
struct History {
  std::vector<StepReport> steps;
  struct EvaluationAt {
    std::int64_t step;
    double loss, accuracy;
  };
  std::vector<EvaluationAt> evaluations;
  std::optional<GradientSlice::Finding> gradients;  ///< if they were compared with differences
  std::optional<bool> replayed;  ///< the first step done twice left the same bits; if it was
  bool copies = false;           ///< several ranks hold the same tensors, which the digest compares
  double differing = 0;          ///< of these, not the same to the bit
  double pairs = 0;  ///< (query, key) pairs within documents of a step, all ranks, on average
  double executed_flops = 0;  ///< of a step, all ranks
  double energy_j = 0;        ///< of all ranks' GPUs, over these steps; NaN if nobody says
};

/// The checks that every run must pass, and, of a complete run, those that the deck asks for.
results::Verdict judge(const inputs::Deck& deck, const History& history, bool complete);
/// Those of a run that only evaluates.
results::Verdict judge_evaluation(const inputs::Deck& deck, const History& history);

}  // namespace stowage::drivers
