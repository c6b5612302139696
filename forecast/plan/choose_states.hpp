#pragma once

#include <vector>

#include "forecast/plan/trainer_plan.hpp"

namespace stowage::forecast {

/// How much of the states has its home on the host (offload.states = ["auto"]): they leave before
/// saved tensors do, which would travel in every microbatch. So it is the least with which all that
/// is saved may stay within offload.device_budget_bytes. Where all of them are not enough, an
/// automatic policy sees to the rest; where there is none, last_resorts() leave.
///
/// @param options with all else decided
/// @throws Error (exit 2) if no part fits the host's budget, or there is no automatic policy and
/// the device does not do with all of these on the host
layers::StatesOnHost choose_states(const TrainerOptions& options);

/// Homes for a plan that does not fit with these: parts of the gradients leave too, then parts of
/// the parameters, since every microbatch uses them. From the fewest bytes to all.
std::vector<layers::StatesOnHost> last_resorts(layers::StatesOnHost host);

}  // namespace stowage::forecast
