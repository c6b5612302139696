// Device code of reductions over ranks: a thread an element, neighbours next to each other; bound
// by memory, ranks + 1 elements each.

#include "execution/parallel_for.cuh"
#include "parallel/fold.hpp"

using stowage::execution::Bf16;
using stowage::parallel::detail::Fold;

// Named, because a macro's argument ends at a comma.
using FoldFp64 = Fold<double, double, double>;
using FoldFp32 = Fold<float, float, float>;
using FoldBf16 = Fold<Bf16, Bf16, float>;
using FoldWire = Fold<float, Bf16, float>;
using FoldInt32 = Fold<std::int32_t, std::int32_t, std::int32_t>;
using FoldInt64 = Fold<std::int64_t, std::int64_t, std::int64_t>;
STOWAGE_INSTANTIATE_PARALLEL_FOR(FoldFp64);
STOWAGE_INSTANTIATE_PARALLEL_FOR(FoldFp32);
STOWAGE_INSTANTIATE_PARALLEL_FOR(FoldBf16);
STOWAGE_INSTANTIATE_PARALLEL_FOR(FoldWire);
STOWAGE_INSTANTIATE_PARALLEL_FOR(FoldInt32);
STOWAGE_INSTANTIATE_PARALLEL_FOR(FoldInt64);
STOWAGE_INSTANTIATE_PARALLEL_FOR(stowage::parallel::detail::ToWire);
