#pragma once

#include <map>
#include <string>

#include "forecast/rates/machine_facts.hpp"
#include "offload/rates.hpp"
#include "parallel/groups/grid.hpp"

namespace stowage::forecast {

/// The links of groups of ranks, by name: as MachineFacts::links has measured them, of groups of
/// their size or of the nearest one, else by where the ranks of a group lie. A group within a host
/// has `inside`. In one that spans hosts every rank sends to every other by itself, as
/// parallel/collectives do, so that what goes to other hosts passes the rank's own port; a message
/// takes as many steps as halving the hosts does.
/// @throws Error (exit 2) if groups span hosts and nothing is known of the network
std::map<std::string, offload::Link> machine_links(const MachineFacts& facts,
                                                   const parallel::GridShape& shape,
                                                   const offload::Link& inside);

/// Ranks of a group, as lines of machine.links count them: neighbours in a pipeline are two.
int link_ranks(const parallel::GridShape& shape, parallel::Group group);

/// What MachineFacts::links_with_compute says of the groups of a grid, by the names of
/// Rates::links_with_compute.
std::map<std::string, offload::Link> machine_links_with_compute(const MachineFacts& facts,
                                                                const parallel::GridShape& shape);

}  // namespace stowage::forecast
