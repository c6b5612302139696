// Device code of the step's sums: one thread per element.

#include "execution/parallel_for.cuh"
#include "kernels/step_sums/step_sums_element.hpp"

STOWAGE_INSTANTIATE_PARALLEL_FOR(stowage::kernels::detail::GatherSums<float>);
STOWAGE_INSTANTIATE_PARALLEL_FOR(stowage::kernels::detail::GatherSums<double>);
STOWAGE_INSTANTIATE_PARALLEL_FOR(stowage::kernels::detail::SpreadSums<float>);
STOWAGE_INSTANTIATE_PARALLEL_FOR(stowage::kernels::detail::SpreadSums<double>);
