// Device code of advance: one thread.

#include "execution/parallel_for.cuh"
#include "kernels/optimizer/advance.hpp"

STOWAGE_INSTANTIATE_PARALLEL_FOR(stowage::kernels::detail::Advance);
