#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>

#include "execution/op.hpp"
#include "execution/persistent.hpp"

/// A 128-bit digest of tensors, made where they lie: two runs whose digests agree hold the same
/// bits.
///
/// The digest is two sums modulo 2^64 over all elements of all tensors,
///
///     sum_h = sum over t, i of (bits(t, i) + 1) C_h(i mod 8) K_h(t, floor(i / 8)),     h = 0, 1
///
/// where bits(t, i) is element i of tensor t as an unsigned integer (elements of 8 bytes are two,
/// the low half first), C_h are eight odd constants and K_h(t, b) are odd numbers mixed from the
/// tensor's name, its dtype and the number of the block. Integer sums are associative, so neither
/// the launch, nor the order of tensors, nor the number of ranks that hold parts of them changes a
/// bit. One changed element always changes both sums (an odd factor has an inverse); several keep
/// them with a chance of 2^-64 at most. Zeros count too, by the + 1. It tells accidents, not
/// forgers.
namespace stowage::kernels {

/// Which elements of a whole tensor a buffer holds: local element l is the whole's element
/// first + (l / run) * stride + l % run, both counted row by row over the shapes.
///
/// A whole tensor is {stream}. Rows [r, r + n) of (R, D) are {stream, r * D}. Columns [c, c + m)
/// are {stream, c, m, D}. What is cut in two dimensions is added part by part.
struct DigestSlice {
  std::uint64_t stream = 0;  ///< execution::stream_of the tensor's name
  std::int64_t first = 0;
  std::int64_t run = 0;  ///< elements that lie together in the whole; 0: all of them
  std::int64_t stride = 0;
};

/// Adds the digest of a tensor's only buffer, of any dtype, to `sums`: int64 (2), which the caller
/// has filled with 0 (fill). Digests of shards are added by an integer all-reduce of `sums`.
void add_digest(execution::Queue& queue, const DigestSlice& slice, const execution::View& tensor,
                const execution::View& sums);

/// Adds the digests of tensors of a persistent region, each under its name in the layout.
/// @param region the bytes of the layout, in the queue's memory
/// @param slice  which part of the whole this layout has of a tensor; default: all of it
/// @throws Error if the layout has no such tensor
void add_digest(execution::Queue& queue, const execution::PersistentLayout& layout, void* region,
                std::span<const std::string> names, const execution::View& sums,
                const std::function<DigestSlice(const execution::TensorInfo&)>& slice = {});

/// The host reference, element by element.
void digest_ref(const DigestSlice& slice, execution::Dtype dtype, std::int64_t count,
                const void* data, std::uint64_t sums[2]);

/// 32 hexadecimal digits, as result sets hold them.
std::string digest_text(const std::uint64_t sums[2]);

/// One pass over the bytes.
execution::Cost digest_cost(std::int64_t count, execution::Dtype dtype);

}  // namespace stowage::kernels
