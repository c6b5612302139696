#pragma once

#include <span>
#include <string>
#include <vector>

#include "parallel/proof/communication_trace.hpp"

namespace stowage::parallel {

/// A trace as bytes for another rank: 3 or 4 for a call, and for an op mostly the part of its name
/// that differs from the op before it.
std::string to_bytes(const RankTrace& trace);

/// The traces of all ranks from their bytes. Those with equal programs share them, so that memory
/// grows with what ranks do differently.
/// @throws Error for bytes that to_bytes did not make
std::vector<RankTrace> from_bytes(std::span<const std::string> ranks);

}  // namespace stowage::parallel
