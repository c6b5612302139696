// Device code of the digest: one thread for every 131072nd group of eight elements, bound by memory
// for four bytes and wider, by integer products for two.

#include "execution/parallel_for.cuh"
#include "kernels/digest/functor.hpp"

using stowage::kernels::detail::AddDigest;

STOWAGE_INSTANTIATE_PARALLEL_FOR(AddDigest<std::uint8_t>);
STOWAGE_INSTANTIATE_PARALLEL_FOR(AddDigest<std::uint16_t>);
STOWAGE_INSTANTIATE_PARALLEL_FOR(AddDigest<std::uint32_t>);
