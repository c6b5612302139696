// Device code of the operators of capacity.hpp: one thread an element.

#include "execution/parallel_for.cuh"
#include "kernels/moe/capacity_element.hpp"

STOWAGE_INSTANTIATE_PARALLEL_FOR(stowage::kernels::detail::LimitOffsets);
STOWAGE_INSTANTIATE_PARALLEL_FOR(stowage::kernels::detail::LimitSlots);
STOWAGE_INSTANTIATE_PARALLEL_FOR(stowage::kernels::detail::TellRows<float>);
STOWAGE_INSTANTIATE_PARALLEL_FOR(stowage::kernels::detail::TellRows<double>);
STOWAGE_INSTANTIATE_PARALLEL_FOR(stowage::kernels::detail::JudgeRows<float>);
STOWAGE_INSTANTIATE_PARALLEL_FOR(stowage::kernels::detail::JudgeRows<double>);
