#pragma once

#include <span>
#include <vector>

#include "inputs/deck/deck.hpp"
#include "results/checkpoint.hpp"
#include "run/state/whole_tensors.hpp"

/// Weights alone, without the rest of a training state: what a published model is, and what a run
/// may start from.
namespace stowage::run {

/// The weights of a deck's model: trained tensors, then the biases that choose experts. The dtype
/// is that of a run of the deck.
std::vector<results::TensorSpec> weights_of(const inputs::Deck& deck);
/// The first of these alone.
std::vector<results::TensorSpec> parameters_of(const inputs::Deck& deck);

/// Which of a checkpoint's weights: those that are trained, or their averages.
enum class Weights : unsigned char { trained, ema };
/// As --weights says it. @throws Error (exit 2) for another word
Weights weights_called(const std::string& word);

/// The state of a checkpoint of weights at step 0, for a run that starts from them.
results::CheckpointState weights_state(const inputs::Deck& deck);
/// True for such a checkpoint: it has no moments, and no position of the loader.
bool holds_only_weights(const results::CheckpointState& state);

/// Where weights go in a trainer that has its initial state: into a parameter, rounded to the run's
/// storage, and into its master and its average, in full.
/// @param given the weights that there are, of any floating dtype
/// @throws Error (exit 2), naming `origin`, if a parameter is not given, has another shape, or is
/// none of the trainer's
std::vector<results::TensorTarget> starting_targets(const WholeTensors& tensors,
                                                    std::span<const results::TensorSpec> given,
                                                    const std::string& origin);

/// Where the averages of a trainer begin: at the weights of a training state that has none, masters
/// if there are any.
/// @param given the tensors of that state
std::vector<results::TensorTarget> average_targets(const WholeTensors& tensors,
                                                   std::span<const results::TensorSpec> given);

/// Where the averages of a training state go in a trainer of weights alone: into the parameters,
/// rounded; what is no parameter goes in as it is.
/// @param given the tensors of that state, `origin` its file
/// @throws Error (exit 2) if there are no averages
std::vector<results::TensorTarget> averaged_targets(const WholeTensors& tensors,
                                                    std::span<const results::TensorSpec> given,
                                                    const std::string& origin);

/// Elements of one floating dtype as those of another, rounded to nearest even.
std::vector<std::byte> converted(std::span<const std::byte> from, execution::Dtype given,
                                 execution::Dtype wanted);

/// Copies tensor after tensor, some MiB at a time. Both have the same tensors in the same order.
void copy_weights(std::span<const results::TensorSource> from,
                  std::span<const results::TensorTarget> to);

}  // namespace stowage::run
