#include "forecast/rates/machine_links.hpp"

#include <algorithm>
#include <cmath>
#include <vector>

#include "execution/error.hpp"

namespace stowage::forecast {
namespace {

using offload::Link;
using parallel::Group;

/// The name that a line has among Rates::links, of group `of`.
std::string name_in(const GroupLink& line, const std::string& of) {
  return line.kind.empty() ? of : of + " " + line.kind;
}

/// Whether `a` is nearer to groups of `ranks` than `b`: the most ranks that are no more, or else
/// the fewest.
bool nearer(int a, int b, int ranks) {
  if ((a <= ranks) != (b <= ranks)) return a <= ranks;
  return a <= ranks ? a > b : a < b;
}

/// Adds what lines say of groups of a grid; the last of equal ones counts. Those for any size hold
/// where a group has none of its own. A line for all groups of a size says nothing of one that
/// `links` or a line knows by name, but for kinds of collectives that only others have a line of.
void add_lines(const std::vector<GroupLink>& lines, const parallel::GridShape& shape,
               std::map<std::string, Link>& links) {
  std::map<std::string, const GroupLink*> nearest;  // by names of Rates::links
  for (std::size_t which = 0; which < parallel::kGroups; ++which) {
    const auto group = static_cast<Group>(which);
    const std::string name(parallel::name(group));
    const auto has_own = [&](const std::string& kind) {
      return std::ranges::any_of(
          lines, [&](const GroupLink& line) { return line.group == name && line.kind == kind; });
    };
    const bool named = links.contains(name) || has_own("");
    const int ranks = link_ranks(shape, group);
    for (const GroupLink& line : lines) {
      const bool own = line.group == name;
      const bool of_all = line.group == "any" && !named && !has_own(line.kind);
      if (line.ranks == 0 || !(own || of_all)) continue;
      const GroupLink*& best = nearest[name_in(line, name)];
      if (best == nullptr || !nearer(best->ranks, line.ranks, ranks)) best = &line;
    }
  }
  for (const auto& [name, line] : nearest) links[name] = line->link;
  for (const GroupLink& line : lines)
    if (line.ranks == 0 && !nearest.contains(name_in(line, line.group)))
      links[name_in(line, line.group)] = line.link;
}

/// Some ranks, by the blocks of `size` neighbouring ranks that they lie in; 0: all are of one.
struct Blocks {
  std::size_t count = 1;
  std::size_t fewest = 0;  ///< ranks in the block that has least of them
};

/// @param ranks ascending, as `parallel::members` gives them: a search of layouts asks for groups
/// of thousands of ranks, thousands of times
Blocks blocks(const std::vector<int>& ranks, std::int64_t size) {
  if (size == 0) return {1, ranks.size()};
  Blocks found{0, ranks.size()};
  for (auto at = ranks.begin(); at != ranks.end(); ++found.count) {
    const auto next = std::lower_bound(at, ranks.end(), (*at / size + 1) * size);
    found.fewest = std::min(found.fewest, static_cast<std::size_t>(next - at));
    at = next;
  }
  return found;
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

int link_ranks(const parallel::GridShape& shape, Group group) {
  if (group == Group::pipeline) return 2;
  return parallel::group_size(shape, group);
}

std::map<std::string, Link> machine_links(const MachineFacts& facts,
                                          const parallel::GridShape& shape, const Link& inside) {
  std::map<std::string, Link> links;
  const std::int64_t per_host = facts.ranks_per_node;
  for (std::size_t which = 0; per_host > 0 && which < parallel::kGroups; ++which) {
    const auto group = static_cast<Group>(which);
    const std::vector<int> ranks = parallel::members(shape, 0, parallel::axes(group));
    const Blocks hosts = blocks(ranks, per_host);
    if (hosts.count == 1) continue;
    const double network = facts.network_bytes_per_s;
    if (network == 0)
      execution::throw_usage("{}: give machine.network_bytes_per_s, since {} ranks span hosts",
                             facts.ranks_per_node_cited, shape.ranks());
    double bytes_per_s = std::min(inside.bytes_per_s, through(network, ranks, hosts, group));
    const double spine = facts.spine_bytes_per_s;
    const Blocks switches = blocks(ranks, facts.ranks_per_switch);
    if (spine > 0 && switches.count > 1)
      bytes_per_s = std::min(bytes_per_s, through(spine, ranks, switches, group));
    const double steps = std::ceil(std::log2(static_cast<double>(hosts.count)));
    links[std::string(parallel::name(group))] = {inside.latency_s + steps * facts.network_latency_s,
                                                 bytes_per_s};
  }
  add_lines(facts.links, shape, links);
  return links;
}

std::map<std::string, Link> machine_links_with_compute(const MachineFacts& facts,
                                                       const parallel::GridShape& shape) {
  std::map<std::string, Link> links;
  add_lines(facts.links_with_compute, shape, links);
  return links;
}

}  // namespace stowage::forecast
