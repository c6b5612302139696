#include "ctest/execution/scale_rows.hpp"
#include "execution/parallel_for.cuh"

STOWAGE_INSTANTIATE_PARALLEL_FOR(stowage::execution::ScaleRows);
