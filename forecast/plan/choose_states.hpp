#pragma once

#include "forecast/plan/trainer_plan.hpp"

namespace stowage::forecast {

/// How much of the states has its home on the host (offload.states = ["auto"]): they leave before
/// saved tensors do, which would travel in every microbatch. So it is the least with which all that
/// is saved may stay within offload.device_budget_bytes. Where all of them are not enough, the
/// policy sees to the rest.
///
/// @param options with all else decided
/// @throws Error (exit 2) if no part fits the host's budget, or the policy leaves saved tensors
/// alone and the device does not do with all states on the host
layers::StatesOnHost choose_states(const TrainerOptions& options);

}  // namespace stowage::forecast
