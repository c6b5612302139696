// Device code of the microbatch operators: one thread per element.

#include "execution/parallel_for.cuh"
#include "kernels/microbatch/row_of_stack.hpp"

STOWAGE_INSTANTIATE_PARALLEL_FOR(stowage::kernels::detail::RowOfStack);
STOWAGE_INSTANTIATE_PARALLEL_FOR(stowage::kernels::detail::AdvanceIndex);
