#pragma once

#include <string>
#include <string_view>

#include "parallel/job/mpi.hpp"

namespace stowage::parallel {

/// Collective. Throws the same Error(Exit::usage) on every rank if a rank's text is not rank 0's.
/// The message names the first such rank, and both texts or the line in which they begin to differ.
/// `what` is a plural: "decks", "programs".
void require_equal(const Communicator& world, std::string_view what, const std::string& text);

}  // namespace stowage::parallel
