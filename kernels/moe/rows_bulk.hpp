#pragma once

#include <cstdint>

/// Gather and combine of whole rows by the copy engine, for the launches of rows.cu.
namespace stowage::kernels::moe {

/// Whether rows are long enough to gain by it, and few and short enough for shared memory; both
/// ends are aligned to 16 bytes.
bool bulk_rows(std::int64_t tokens, std::int64_t topk, std::int64_t row_bytes);

int launch_bulk_gather(std::int64_t tokens, std::int64_t topk, std::int64_t row_bytes,
                       const void* x, const std::int32_t* token_row, void* xs, void* stream);

template <class S>
int launch_bulk_combine(std::int64_t tokens, std::int64_t topk, std::int64_t row_bytes, const S* ys,
                        const std::int32_t* token_row, S* out, bool accumulate, void* stream);

}  // namespace stowage::kernels::moe
