// Device code of document_index: one thread per token.

#include "execution/parallel_for.cuh"
#include "kernels/documents/document_of_token.hpp"

STOWAGE_INSTANTIATE_PARALLEL_FOR(stowage::kernels::detail::DocumentOfToken);
