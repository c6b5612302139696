// Device code of later_tokens: one thread per token.

#include "execution/parallel_for.cuh"
#include "kernels/documents/later_token.hpp"

STOWAGE_INSTANTIATE_PARALLEL_FOR(stowage::kernels::detail::LaterToken);
