// Device code of round_sum: eight elements a thread, of one block of random bits.

#include "execution/parallel_for.cuh"
#include "kernels/optimizer/rounded_sum.hpp"

STOWAGE_INSTANTIATE_PARALLEL_FOR(stowage::kernels::detail::RoundedSum<double>);
STOWAGE_INSTANTIATE_PARALLEL_FOR(stowage::kernels::detail::RoundedSum<float>);
