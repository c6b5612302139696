#include "drivers/common/machine_links.hpp"

#include <algorithm>
#include <cmath>
#include <ranges>
#include <sstream>
#include <vector>

#include "execution/error.hpp"

namespace stowage::drivers {
namespace {

using inputs::Deck;
using offload::Link;
using parallel::Group;

/// The link of a group as machine.links has it: "data 1.2e-5 3.4e11".
std::pair<std::string, Link> parse(const Deck& deck, const std::string& given) {
  std::istringstream words(given);
  std::string group, more;
  Link link{0, 0};
  const bool three = static_cast<bool>(words >> group >> link.latency_s >> link.bytes_per_s);
  if (!three || words >> more || !(link.latency_s >= 0 && link.bytes_per_s > 0))
    execution::throw_usage(
        "{}: '{}' is no link; allowed: a group, seconds >= 0 and bytes per "
        "second > 0, as \"data 1.2e-5 3.4e11\"",
        deck.cite("machine.links"), given);
  std::string names;
  for (std::size_t which = 0; which < parallel::kGroups; ++which) {
    const std::string_view known = parallel::name(static_cast<Group>(which));
    if (known == group) return {group, link};
    names += fmt::format("{}{}", names.empty() ? "" : ", ", known);
  }
  execution::throw_usage("{}: '{}' names no group; there are {}", deck.cite("machine.links"), given,
                         names);
}

/// Some ranks, by the blocks of `size` neighbouring ranks that they lie in; 0: all are of one.
struct Blocks {
  std::size_t count = 1;
  std::size_t fewest = 0;  ///< ranks in the block that has least of them
};

Blocks blocks(const std::vector<int>& ranks, std::int64_t size) {
  if (size == 0) return {1, ranks.size()};
  std::map<std::int64_t, std::size_t> found;
  for (const int rank : ranks) ++found[rank / size];
  return {found.size(), std::ranges::min(found | std::views::values)};
}

/// Bytes per second of one rank to all others of its group, if what leaves its block takes a way of
/// `bytes_per_s`: the rest stays inside. Neighbours in a pipeline may lie on either side of it.
double through(double bytes_per_s, const std::vector<int>& ranks, const Blocks& blocks,
               Group group) {
  if (group == Group::pipeline) return bytes_per_s;
  return bytes_per_s * static_cast<double>(ranks.size() - 1) /
         static_cast<double>(ranks.size() - blocks.fewest);
}

}  // namespace

std::map<std::string, Link> machine_links(const Deck& deck, const parallel::GridShape& shape,
                                          const Link& inside) {
  std::map<std::string, Link> links;
  const auto per_host = deck.get<std::int64_t>("machine.ranks_per_node");
  for (std::size_t which = 0; per_host > 0 && which < parallel::kGroups; ++which) {
    const auto group = static_cast<Group>(which);
    const std::vector<int> ranks = parallel::members(shape, 0, parallel::axes(group));
    const Blocks hosts = blocks(ranks, per_host);
    if (hosts.count == 1) continue;
    const auto network = deck.get<double>("machine.network_bytes_per_s");
    if (network == 0)
      execution::throw_usage("{}: give machine.network_bytes_per_s, since {} ranks span hosts",
                             deck.cite("machine.ranks_per_node"), shape.ranks());
    double bytes_per_s = std::min(inside.bytes_per_s, through(network, ranks, hosts, group));
    const auto spine = deck.get<double>("machine.spine_bytes_per_s");
    const Blocks switches = blocks(ranks, deck.get<std::int64_t>("machine.ranks_per_switch"));
    if (spine > 0 && switches.count > 1)
      bytes_per_s = std::min(bytes_per_s, through(spine, ranks, switches, group));
    const double steps = std::ceil(std::log2(static_cast<double>(hosts.count)));
    links[std::string(parallel::name(group))] = {
        inside.latency_s + steps * deck.get<double>("machine.network_latency_s"), bytes_per_s};
  }
  for (const std::string& given : deck.get<std::vector<std::string>>("machine.links")) {
    const auto [group, link] = parse(deck, given);
    links[group] = link;
  }
  return links;
}

}  // namespace stowage::drivers
