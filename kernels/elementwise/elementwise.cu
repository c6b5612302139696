// Device code of the elementwise operators: one thread per 16 bytes, bound by memory; two values of
// a random stream a thread, bound by integer products.

#include "execution/parallel_for.cuh"
#include "kernels/elementwise/functors.hpp"

using stowage::execution::Bf16;
using stowage::kernels::detail::Add;
using stowage::kernels::detail::Cast;
using stowage::kernels::detail::CopyRows;
using stowage::kernels::detail::Fill;
using stowage::kernels::detail::FillNormal;
using stowage::kernels::detail::JoinColumns;
using stowage::kernels::detail::Scale;
using stowage::kernels::detail::SplitColumns;

STOWAGE_INSTANTIATE_PARALLEL_FOR(Add<double>);
STOWAGE_INSTANTIATE_PARALLEL_FOR(Add<float>);
STOWAGE_INSTANTIATE_PARALLEL_FOR(Add<Bf16>);

STOWAGE_INSTANTIATE_PARALLEL_FOR(Scale<double>);
STOWAGE_INSTANTIATE_PARALLEL_FOR(Scale<float>);
STOWAGE_INSTANTIATE_PARALLEL_FOR(Scale<Bf16>);

STOWAGE_INSTANTIATE_PARALLEL_FOR(Fill<double>);
STOWAGE_INSTANTIATE_PARALLEL_FOR(Fill<float>);
STOWAGE_INSTANTIATE_PARALLEL_FOR(Fill<Bf16>);
STOWAGE_INSTANTIATE_PARALLEL_FOR(Fill<std::int32_t>);
STOWAGE_INSTANTIATE_PARALLEL_FOR(Fill<std::int64_t>);
STOWAGE_INSTANTIATE_PARALLEL_FOR(Fill<std::uint8_t>);

STOWAGE_INSTANTIATE_PARALLEL_FOR(FillNormal<double>);
STOWAGE_INSTANTIATE_PARALLEL_FOR(FillNormal<float>);
STOWAGE_INSTANTIATE_PARALLEL_FOR(FillNormal<Bf16>);

STOWAGE_INSTANTIATE_PARALLEL_FOR(SplitColumns<double>);
STOWAGE_INSTANTIATE_PARALLEL_FOR(SplitColumns<float>);
STOWAGE_INSTANTIATE_PARALLEL_FOR(SplitColumns<Bf16>);

STOWAGE_INSTANTIATE_PARALLEL_FOR(JoinColumns<double>);
STOWAGE_INSTANTIATE_PARALLEL_FOR(JoinColumns<float>);
STOWAGE_INSTANTIATE_PARALLEL_FOR(JoinColumns<Bf16>);

// Named, because a macro's argument ends at a comma.
using CopyFp64 = CopyRows<double, double>;
using CopyFp32 = CopyRows<float, float>;
using CopyBf16 = CopyRows<Bf16, Bf16>;
using CopyDown = CopyRows<float, Bf16>;
STOWAGE_INSTANTIATE_PARALLEL_FOR(CopyFp64);
STOWAGE_INSTANTIATE_PARALLEL_FOR(CopyFp32);
STOWAGE_INSTANTIATE_PARALLEL_FOR(CopyBf16);
STOWAGE_INSTANTIATE_PARALLEL_FOR(CopyDown);

using CastFp64 = Cast<double, double>;
using CastFp32 = Cast<float, float>;
using CastDown = Cast<float, Bf16>;
using CastUp = Cast<Bf16, float>;
using CastBf16 = Cast<Bf16, Bf16>;
STOWAGE_INSTANTIATE_PARALLEL_FOR(CastFp64);
STOWAGE_INSTANTIATE_PARALLEL_FOR(CastFp32);
STOWAGE_INSTANTIATE_PARALLEL_FOR(CastDown);
STOWAGE_INSTANTIATE_PARALLEL_FOR(CastUp);
STOWAGE_INSTANTIATE_PARALLEL_FOR(CastBf16);
