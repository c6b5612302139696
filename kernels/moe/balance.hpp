#pragma once

#include <cstdint>

#include "execution/op.hpp"

namespace stowage::kernels {

/// Auxiliary-loss-free balancing of experts (arXiv 2408.15664): the load of a step is counted, and
/// at its end the selection bias of each expert moves by one fixed step towards the mean load.

/// load (E) accum = rows of each expert, offsets[e + 1] - offsets[e], offsets (E + 1) int32; added
/// to load when `accumulate`.
void expert_load(execution::Queue& queue, const execution::View& offsets,
                 const execution::View& load, bool accumulate);

/// bias (E) accum += rate * sign(mean(load) - load), if step_ok (1) int32 is not 0. load (E) accum
/// holds the counts of the whole step over all ranks.
void expert_bias_update(execution::Queue& queue, const execution::View& load,
                        const execution::View& bias, double rate, const execution::View& step_ok);

execution::Cost expert_load_cost(std::int64_t experts, execution::Dtype accumulation);
execution::Cost expert_bias_update_cost(std::int64_t experts, execution::Dtype accumulation);

/// Host references; A is float or double.
template <class A>
void expert_load_ref(std::int64_t experts, const std::int32_t* offsets, A* load, bool accumulate);
template <class A>
void expert_bias_update_ref(std::int64_t experts, const A* load, A* bias, double rate,
                            const std::int32_t* step_ok);

}  // namespace stowage::kernels
