#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "forecast/plan/parallel_section.hpp"
#include "forecast/plan/trainer_plan.hpp"
#include "inputs/data/run_data.hpp"
#include "inputs/deck/deck.hpp"
#include "parallel/job/mpi.hpp"
#include "parallel/proof/joint_proof.hpp"
#include "parallel/transport/nccl_options.hpp"

namespace stowage::forecast {

/// [model], with what ranks exchange in it.
layers::ModelConfig model_config(const inputs::Deck& deck);
/// The model as one stage, on one rank.
layers::Model whole_model(const inputs::Deck& deck);
/// Which steps become graphs.
offload::GraphOptions graph_options(const inputs::Deck& deck);

/// The process grid that the deck asks for on so many ranks.
parallel::GridShape grid_shape(const inputs::Deck& deck, int ranks);

/// The sequences of a step that this rank trains on.
parallel::SequencePart sequence_part(const inputs::Deck& deck, const parallel::Communicator& world);

/// How NCCL is pinned, and whether copy engines move bytes in its stead.
parallel::NcclOptions nccl_options(const inputs::Deck& deck);

/// Key that no GPU can obey in this deck, for a message; empty if a GPU can run it.
std::string_view host_only(const inputs::Deck& deck);

/// The order of a rank's communication: on a GPU all of it follows each other as issued.
parallel::RankOrder rank_order_on(bool gpus);
/// The same where no machine can be asked: that of GPUs, unless the deck asks for the host or for
/// what only the host can do.
parallel::RankOrder planned_order(const inputs::Deck& deck);

/// What a plan must know of a run besides its deck.
struct RunNeeds {
  std::vector<std::int64_t> capacities{1};  ///< documents of a microbatch, ascending
  std::int64_t pairs = 0;                   ///< as layers::StepShape's
  bool evaluates = false;                   ///< enough is held out, and it is asked for
  bool saves = false;                       ///< checkpoints, if the deck names a directory
  layers::Logits logits{};                  ///< that evaluations leave behind
};

/// Those of a training run with these data: it evaluates and saves.
RunNeeds training_needs(const inputs::Deck& deck, const inputs::Data& data);
/// Those of steps alone, which one program does for all their documents.
RunNeeds step_needs(const inputs::Data& data);

/// All options of one rank, from the deck that is checked already.
/// @param microbatches of a step on one rank  @param ranks of which this is one
/// @param order of their communication: that of the machine (machine.hpp)
TrainerOptions trainer_options(const inputs::Deck& deck, const RunNeeds& needs,
                               std::int64_t microbatches, const parallel::Ranks& ranks,
                               parallel::RankOrder order);

}  // namespace stowage::forecast
