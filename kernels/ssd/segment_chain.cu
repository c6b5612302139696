// Device code of ssd_enter_state and ssd_enter_adjoint: one thread per element of the state.

#include "execution/parallel_for.cuh"
#include "kernels/ssd/segment_chain.hpp"

using StateFp32 = stowage::kernels::detail::EnterSegment<float, false>;
using StateFp64 = stowage::kernels::detail::EnterSegment<double, false>;
using AdjointFp32 = stowage::kernels::detail::EnterSegment<float, true>;
using AdjointFp64 = stowage::kernels::detail::EnterSegment<double, true>;
STOWAGE_INSTANTIATE_PARALLEL_FOR(StateFp32);
STOWAGE_INSTANTIATE_PARALLEL_FOR(StateFp64);
STOWAGE_INSTANTIATE_PARALLEL_FOR(AdjointFp32);
STOWAGE_INSTANTIATE_PARALLEL_FOR(AdjointFp64);
