#pragma once

#include "results/verdict.hpp"
#include "run/measure/record.hpp"
#include "run/measure/timer.hpp"

namespace stowage::drivers {

/// What the parts of stowage_ceilings share.
struct Ceilings {
  run::Gpu& gpu;
  run::Timer& timer;
  run::Record& record;
  results::Verdict& verdict;
  run::MeasureOptions options;
};

/// bf16 products y = x w^T by the fastest algorithm that cuBLASLt's heuristics name, for a large
/// cube and the shapes of a hybrid model's layers. Ceiling `gemm_bf16` over the flops of a product.
void measure_products(Ceilings& run);

/// Copies within device memory (bytes read plus bytes written; the copy engine and a kernel) and
/// between page-locked host memory and the device, one way and both ways at once, by size.
/// Ceilings `device_copy`, `copy_kernel`, `d2h`, `h2d`, `duplex`.
void measure_copies(Ceilings& run);

/// Time of ten 8192^3 products, of ten attention forwards and of a copy kernel, alone and beside
/// D2H, H2D and both, sample by sample in turn; clocks and power of each sample in the series
/// `interference_*`.
void measure_interference(Ceilings& run);

/// Fills bf16 memory with nearly normal values of this deviation.
void fill_random(run::Gpu& gpu, execution::Arena& memory, std::int64_t seed, std::uint64_t stream,
                 double deviation);

}  // namespace stowage::drivers
