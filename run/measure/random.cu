// The device half of the portable loops of random.hpp.
#include "run/measure/random.hpp"

#include "execution/parallel_for.cuh"

STOWAGE_INSTANTIATE_PARALLEL_FOR(stowage::run::RandomNormal<float>);
STOWAGE_INSTANTIATE_PARALLEL_FOR(stowage::run::RandomNormal<stowage::execution::Bf16>);
STOWAGE_INSTANTIATE_PARALLEL_FOR(stowage::run::CopyBlocks);
