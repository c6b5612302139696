#pragma once

#include <cstdint>
#include <string>

#include "execution/global_index.hpp"
#include "execution/op.hpp"

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

/// What a buffer holds of a whole tensor.
struct DigestPart {
  std::uint64_t stream = 0;           ///< execution::stream_of the tensor's name
  execution::GlobalIndex index = {};  ///< of its elements; default: it is the whole
};

/// Adds the digest of a tensor's only buffer, of any dtype, to `sums`: int64 (2), which the caller
/// has filled with 0 (fill). Digests of parts that share no element are added as integers.
void add_digest(execution::Queue& queue, const DigestPart& part, const execution::View& tensor,
                const execution::View& sums);

/// The host reference, element by element.
void digest_ref(const DigestPart& part, execution::Dtype dtype, std::int64_t count,
                const void* data, std::uint64_t sums[2]);

/// 32 hexadecimal digits, as result sets hold them.
std::string digest_text(const std::uint64_t sums[2]);

}  // namespace stowage::kernels
