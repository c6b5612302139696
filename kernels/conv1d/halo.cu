// Device code of conv1d_halo_rows and conv1d_halo_add: one thread per element of three rows.

#include "execution/parallel_for.cuh"
#include "kernels/conv1d/halo_rows.hpp"

using stowage::execution::Bf16;
using stowage::kernels::detail::AddHalo;
using stowage::kernels::detail::TakeHalo;

STOWAGE_INSTANTIATE_PARALLEL_FOR(TakeHalo<double>);
STOWAGE_INSTANTIATE_PARALLEL_FOR(TakeHalo<float>);
STOWAGE_INSTANTIATE_PARALLEL_FOR(TakeHalo<Bf16>);

STOWAGE_INSTANTIATE_PARALLEL_FOR(AddHalo<double>);
STOWAGE_INSTANTIATE_PARALLEL_FOR(AddHalo<float>);
STOWAGE_INSTANTIATE_PARALLEL_FOR(AddHalo<Bf16>);
