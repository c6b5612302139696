#pragma once

#include <string>

#include "forecast/plan/rank_plan.hpp"
#include "forecast/plan/trainer_plan.hpp"
#include "inputs/deck/deck.hpp"
#include "results/part_file.hpp"

namespace stowage::drivers {

/// What all ranks of a deck's pipeline are expected to do when. Where a policy moves anything or
/// computes it again, passes take as long as in the plans of their ranks.
class PipelinePicture {
 public:
  /// @throws Error (exit 2) if the deck has no pipeline
  explicit PipelinePicture(const inputs::Deck& deck);

  /// As a picture of text: time to the right, for each rank what it computes and of which
  /// microbatch, what it exchanges and copies, and how long it waits.
  std::string text(int columns) const;
  /// As a trace: passes, exchanges beside them, and the copies of what leaves device memory, which
  /// lie where they lie in the plan of a rank, beside the same pass.
  void write(results::PartFile& part) const;

 private:
  std::string name_;  ///< of the deck
  forecast::PlannedData data_;
  forecast::TrainerOptions options_;
  forecast::PipelinePlan pipeline_;
  std::vector<forecast::RankPlan>
      plans_;  ///< by rank, where a policy moves anything or computes it again
  forecast::Timeline timeline_;
};

}  // namespace stowage::drivers
