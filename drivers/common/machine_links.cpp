#include "drivers/common/machine_links.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <ranges>
#include <sstream>
#include <vector>

#include "drivers/common/words.hpp"
#include "execution/error.hpp"

namespace stowage::drivers {
namespace {

using inputs::Deck;
using offload::Link;
using parallel::Group;

constexpr const char* kKinds[] = {"all_gather", "all_reduce", "all_to_all",
                                  "broadcast",  "exchange",   "reduce_scatter"};

/// Names of groups, or any.
std::string groups() {
  std::string names = "any";
  for (std::size_t which = 0; which < parallel::kGroups; ++which)
    names += fmt::format(", {}", parallel::name(static_cast<Group>(which)));
  return names;
}

bool is_group(const std::string& word) {
  bool found = word == "any";
  for (std::size_t which = 0; which < parallel::kGroups; ++which)
    found = found || parallel::name(static_cast<Group>(which)) == word;
  return found;
}

/// The link of a group as machine.links has it, "data 1.2e-5 3.4e11" or, of a kind of collective,
/// "data all_reduce 6e-5 1.7e11", by what Rates::links knows it by.
std::pair<std::string, Link> parse(const Deck& deck, const char* key, const std::string& given) {
  std::istringstream stream(given);
  std::vector<std::string> words;
  for (std::string word; stream >> word;) words.push_back(word);
  const std::optional<double> latency_s = words.size() < 3 ? std::nullopt : number(words.end()[-2]);
  const std::optional<double> bytes_per_s =
      words.size() < 3 ? std::nullopt : number(words.end()[-1]);
  if (words.size() > 4 || !latency_s || !bytes_per_s || !(*latency_s >= 0 && *bytes_per_s > 0))
    execution::throw_usage(
        "{}: '{}' is no link; allowed: a group, a kind of collective or none, seconds >= 0 and "
        "bytes per second > 0, as \"data 1.2e-5 3.4e11\" or \"data all_reduce 6e-5 1.7e11\"",
        deck.cite(key), given);
  if (!is_group(words.front()))
    execution::throw_usage("{}: '{}' names no group; there are {}", deck.cite(key), given,
                           groups());
  std::string name = words.front();
  if (words.size() == 4) {
    if (std::ranges::find(kKinds, words[1]) == std::end(kKinds))
      execution::throw_usage("{}: '{}' names no kind of collective; there are {}", deck.cite(key),
                             given, fmt::join(kKinds, ", "));
    name += " " + words[1];
  }
  return {name, Link{*latency_s, *bytes_per_s}};
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
    const auto [name, link] = parse(deck, "machine.links", given);
    links[name] = link;
  }
  return links;
}

std::map<std::string, Link> machine_links_beside(const Deck& deck) {
  constexpr const char* kKey = "machine.links_beside";
  std::map<std::string, Link> links;
  for (const std::string& given : deck.get<std::vector<std::string>>(kKey)) {
    const auto [name, link] = parse(deck, kKey, given);
    links[name] = link;
  }
  return links;
}

}  // namespace stowage::drivers
