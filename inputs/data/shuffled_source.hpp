#pragma once

#include <memory>

#include "inputs/data/token_source.hpp"

namespace stowage::inputs {

/// The documents of a part of a stream as a stream of their own, in a random order that follows
/// from the seed and the number of documents: neighbours in a file do not share sequences for ever.
///
/// Holds 16 bytes a document. The source must outlive it. A part of a document that the range cuts
/// is a document.
/// @throws Error (exit 2) if the source does not know where documents end
std::unique_ptr<TokenSource> shuffled(const TokenSource& source, TokenRange range,
                                      std::uint64_t seed);

}  // namespace stowage::inputs
