#pragma once

#include "execution/dtype.hpp"
#include "inputs/deck/deck.hpp"
#include "layers/step/learning_rate.hpp"
#include "parallel/joint_proof.hpp"
#include "parallel/mpi.hpp"
#include "parallel/nccl_options.hpp"
#include "training/trainer.hpp"

namespace stowage::drivers {

/// From deck keys to the plain structs that layers take. The deck is checked already.
layers::ModelConfig model_config(const inputs::Deck& deck);
layers::OptimizerConfig optimizer_config(const inputs::Deck& deck);
/// When a step is skipped although its gradient is finite.
kernels::SpikeRule spike_rule(const inputs::Deck& deck);
layers::LearningRate learning_rate(const inputs::Deck& deck);
execution::Dtype storage_dtype(const inputs::Deck& deck);
/// What may leave the device or is computed again, on one stage of a pipeline.
offload::Policy offload_policy(const inputs::Deck& deck, int stage);
/// The machine's rates for ranks of a grid; those of one H200 where the deck does not say.
offload::Rates machine_rates(const inputs::Deck& deck, const parallel::GridShape& shape);
/// Which steps become graphs.
offload::GraphOptions graph_options(const inputs::Deck& deck);

/// The process grid that the deck asks for on so many ranks.
parallel::GridShape grid_shape(const inputs::Deck& deck, int ranks);

/// The sequences of a step that this rank trains on.
parallel::SequencePart sequence_part(const inputs::Deck& deck, const parallel::Communicator& world);

/// How NCCL is pinned, and whether copy engines move bytes in its stead.
parallel::NcclOptions nccl_options(const inputs::Deck& deck);

/// All but capacities and the number of evaluation microbatches.
/// @param microbatches of a step on one rank  @param ranks of which this is one
/// @param order of their communication: that of the machine (machine.hpp)
training::TrainerOptions trainer_options(const inputs::Deck& deck, std::int64_t microbatches,
                                         const parallel::Ranks& ranks, parallel::RankOrder order);

/// Throws a usage error (exit 2) for keys that are legal but that this program cannot do yet:
/// nothing a deck asks for is silently left out.
void refuse_unsupported(const inputs::Deck& deck);

}  // namespace stowage::drivers
