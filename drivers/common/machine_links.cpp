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

bool is_digit(char c) { return c >= '0' && c <= '9'; }

bool is_group(const std::string& word) {
  return word == "any" || parallel::group_named(word).has_value();
}

/// A line of machine.links, "data 1.2e-5 3.4e11" or, of groups of four and a kind of collective,
/// "any:4 all_reduce 6e-5 1.7e11".
struct Line {
  std::string group;
  int ranks = 0;     ///< 0: of groups of any size
  std::string kind;  ///< empty: of all that have no line of their own
  Link link;

  std::string name_in(const std::string& of) const { return kind.empty() ? of : of + " " + kind; }
};

/// Takes ":4" off the word "any:4"; nothing if it is no number of ranks.
std::optional<int> cut_ranks(std::string& word) {
  const std::size_t at = word.find(':');
  if (at == std::string::npos) return 0;
  const std::string ranks = word.substr(at + 1);
  word.resize(at);
  if (ranks.empty() || ranks.size() > 9 || !std::ranges::all_of(ranks, is_digit)) return {};
  const int count = std::stoi(ranks);
  return count >= 2 ? std::optional<int>(count) : std::nullopt;
}

Line parse(const Deck& deck, const char* key, const std::string& given) {
  std::istringstream stream(given);
  std::vector<std::string> words;
  for (std::string word; stream >> word;) words.push_back(word);
  const std::optional<double> latency_s = words.size() < 3 ? std::nullopt : number(words.end()[-2]);
  const std::optional<double> bytes_per_s =
      words.size() < 3 ? std::nullopt : number(words.end()[-1]);
  if (words.size() > 4 || !latency_s || !bytes_per_s || !(*latency_s >= 0 && *bytes_per_s > 0))
    execution::throw_usage(
        "{}: '{}' is no link; allowed: a group, a kind of collective or none, seconds >= 0 and "
        "bytes per second > 0, as \"data 1.2e-5 3.4e11\" or \"any:4 all_reduce 6e-5 1.7e11\"",
        deck.cite(key), given);
  Line line;
  line.group = words.front();
  line.link = {*latency_s, *bytes_per_s};
  const std::optional<int> ranks = cut_ranks(line.group);
  if (!ranks)
    execution::throw_usage(
        "{}: '{}': behind the group's name stands how many ranks it has, two or more, as \"any:4\"",
        deck.cite(key), given);
  line.ranks = *ranks;
  if (!is_group(line.group))
    execution::throw_usage("{}: '{}' names no group; there are {}", deck.cite(key), given,
                           groups());
  if (words.size() == 4) {
    line.kind = words[1];
    if (std::ranges::find(kKinds, line.kind) == std::end(kKinds))
      execution::throw_usage("{}: '{}' names no kind of collective; there are {}", deck.cite(key),
                             given, fmt::join(kKinds, ", "));
  }
  return line;
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
void add_lines(const std::vector<Line>& lines, const parallel::GridShape& shape,
               std::map<std::string, Link>& links) {
  std::map<std::string, const Line*> nearest;  // by names of Rates::links
  for (std::size_t which = 0; which < parallel::kGroups; ++which) {
    const auto group = static_cast<Group>(which);
    const std::string name(parallel::name(group));
    const auto has_own = [&](const std::string& kind) {
      return std::ranges::any_of(
          lines, [&](const Line& line) { return line.group == name && line.kind == kind; });
    };
    const bool named = links.contains(name) || has_own("");
    const int ranks = link_ranks(shape, group);
    for (const Line& line : lines) {
      const bool own = line.group == name;
      const bool of_all = line.group == "any" && !named && !has_own(line.kind);
      if (line.ranks == 0 || !(own || of_all)) continue;
      const Line*& best = nearest[line.name_in(name)];
      if (best == nullptr || !nearer(best->ranks, line.ranks, ranks)) best = &line;
    }
  }
  for (const auto& [name, line] : nearest) links[name] = line->link;
  for (const Line& line : lines)
    if (line.ranks == 0 && !nearest.contains(line.name_in(line.group)))
      links[line.name_in(line.group)] = line.link;
}

std::vector<Line> read_lines(const Deck& deck, const char* key) {
  std::vector<Line> lines;
  for (const std::string& given : deck.get<std::vector<std::string>>(key))
    lines.push_back(parse(deck, key, given));
  return lines;
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

int link_ranks(const parallel::GridShape& shape, Group group) {
  if (group == Group::pipeline) return 2;
  return static_cast<int>(parallel::members(shape, 0, parallel::axes(group)).size());
}

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
  add_lines(read_lines(deck, "machine.links"), shape, links);
  return links;
}

std::map<std::string, Link> machine_links_beside(const Deck& deck,
                                                 const parallel::GridShape& shape) {
  std::map<std::string, Link> links;
  add_lines(read_lines(deck, "machine.links_beside"), shape, links);
  return links;
}

}  // namespace stowage::drivers
