// Device code of segment_documents: one thread per document.

#include "execution/parallel_for.cuh"
#include "kernels/documents/start_in_segment.hpp"

STOWAGE_INSTANTIATE_PARALLEL_FOR(stowage::kernels::detail::StartInSegment);
