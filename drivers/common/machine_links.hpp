#pragma once

#include <map>
#include <string>

#include "inputs/deck/deck.hpp"
#include "offload/rates.hpp"
#include "parallel/grid.hpp"

namespace stowage::drivers {

/// The links of groups of ranks, by name: as machine.links has measured them, of groups of their
/// size or of the nearest one, else by where the ranks of a group lie. A group within a host has
/// `inside`. In one that spans hosts every rank sends to every other by itself, as
/// parallel/collectives do, so that what goes to other hosts passes the rank's own port; a message
/// takes as many steps as halving the hosts does.
/// @throws Error (exit 2) for a link that is none, or a network of which nothing is said
std::map<std::string, offload::Link> machine_links(const inputs::Deck& deck,
                                                   const parallel::GridShape& shape,
                                                   const offload::Link& inside);

/// Ranks of a group, as lines of machine.links count them: neighbours in a pipeline are two.
int link_ranks(const parallel::GridShape& shape, parallel::Group group);

/// What machine.links_beside says of the groups of a grid, by the names of Rates::links_beside.
/// @throws Error (exit 2) for a link that is none
std::map<std::string, offload::Link> machine_links_beside(const inputs::Deck& deck,
                                                          const parallel::GridShape& shape);

}  // namespace stowage::drivers
