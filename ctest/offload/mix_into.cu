#include "ctest/offload/mix_into.hpp"
#include "execution/parallel_for.cuh"

STOWAGE_INSTANTIATE_PARALLEL_FOR(stowage::ctest::MixInto);
