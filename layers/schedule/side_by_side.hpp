#pragma once

#include "execution/program.hpp"

namespace stowage::layers {

/// Makes one pass of two that were recorded one behind the other and need nothing of each other:
/// ops [begin, middle) and those from there on. Each goes on until it needs what it has just begun
/// to exchange with other ranks; then the other does, so that an exchange of one lies beside
/// compute of the other (arXiv 2412.19437, section 3.2.1, has the idea). Each keeps its order, and
/// what both use stays in the order in which it was recorded. The order follows from the ops alone:
/// ranks that exchange must record alike, which those at the ends of a sequence's segments do not.
void put_side_by_side(execution::Program& program, int begin, int middle);

}  // namespace stowage::layers
