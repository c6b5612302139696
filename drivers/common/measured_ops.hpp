#pragma once

#include <string>
#include <vector>

#include "inputs/deck/deck.hpp"

namespace stowage::drivers {

/// What steps that stowage_train timed op by op say of the machine of a deck, for overrides.
struct MeasuredOps {
  std::vector<std::string> efficiency;  ///< lines of machine.op_efficiency
  /// Lines of machine.links_beside, of kinds of collectives in any group of so many ranks: of those
  /// of which three sizes were timed.
  std::vector<std::string> links;
};

/// Of all sets together: what the rates of a deck's machine expect of the ops of a kind over what
/// they took, and the links that fit what collectives took beside compute.
/// @throws Error (exit 2) if a file is no result set of such steps
MeasuredOps measured_ops(const std::vector<std::string>& paths, const inputs::Deck& deck);

}  // namespace stowage::drivers
