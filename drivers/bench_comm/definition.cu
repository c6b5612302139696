// The device half of the portable loops of definition.hpp: a lane is a thread, so that neighbouring
// threads read neighbouring elements; the random numbers bind, not memory.
#include "drivers/bench_comm/definition.hpp"

#include "execution/parallel_for.cuh"

STOWAGE_INSTANTIATE_PARALLEL_FOR(stowage::drivers::WriteSent);
STOWAGE_INSTANTIATE_PARALLEL_FOR(stowage::drivers::CountWrong);
