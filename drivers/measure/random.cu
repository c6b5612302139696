// The device half of the portable loops of random.hpp.
#include "drivers/measure/random.hpp"

#include "execution/parallel_for.cuh"

STOWAGE_INSTANTIATE_PARALLEL_FOR(stowage::drivers::RandomNormal<float>);
STOWAGE_INSTANTIATE_PARALLEL_FOR(stowage::drivers::RandomNormal<stowage::execution::Bf16>);
STOWAGE_INSTANTIATE_PARALLEL_FOR(stowage::drivers::CopyBlocks);
