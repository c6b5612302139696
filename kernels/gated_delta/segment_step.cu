// Device code of gated_delta_enter_state and gated_delta_enter_adjoint: one thread per element.

#include "execution/parallel_for.cuh"
#include "kernels/gated_delta/segment_step.hpp"

using StateFp32 = stowage::kernels::gated_delta::SegmentStep<float, false>;
using StateFp64 = stowage::kernels::gated_delta::SegmentStep<double, false>;
using AdjointFp32 = stowage::kernels::gated_delta::SegmentStep<float, true>;
using AdjointFp64 = stowage::kernels::gated_delta::SegmentStep<double, true>;
STOWAGE_INSTANTIATE_PARALLEL_FOR(StateFp32);
STOWAGE_INSTANTIATE_PARALLEL_FOR(StateFp64);
STOWAGE_INSTANTIATE_PARALLEL_FOR(AdjointFp32);
STOWAGE_INSTANTIATE_PARALLEL_FOR(AdjointFp64);
