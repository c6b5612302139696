// Device code of guard_step: one thread.

#include "execution/parallel_for.cuh"
#include "kernels/optimizer/guard_step.hpp"

STOWAGE_INSTANTIATE_PARALLEL_FOR(stowage::kernels::detail::GuardStep<float>);
STOWAGE_INSTANTIATE_PARALLEL_FOR(stowage::kernels::detail::GuardStep<double>);
