// The table of paths between GPUs and to network cards, as `nvidia-smi topo -m` has it.
#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <set>

#include "results/links.hpp"

namespace stowage::results {
namespace {

constexpr std::string_view kSwitched = " by switch";

/// One host: a row of paths for each of its ranks, to its ranks' GPUs and then to its cards.
struct Table {
  std::vector<std::int64_t> ranks;
  std::vector<std::vector<std::string>> paths;
  std::vector<std::string> numa_nodes;
  std::vector<std::string> nvlinks;
  std::vector<Nic> nics;

  /// Whether only the ranks' numbers differ.
  bool alike(const Table& other) const {
    const auto same = [](const Nic& a, const Nic& b) {
      return a.name == b.name && a.pci == b.pci && a.numa_node == b.numa_node;
    };
    return paths == other.paths && numa_nodes == other.numa_nodes && nvlinks == other.nvlinks &&
           std::ranges::equal(nics, other.nics, same);
  }
};

std::string nvlink_text(const RankInfo& rank) {
  if (rank.gpu_nvlinks == 0 && rank.gpu_nvlinks_down == 0) return "-";
  std::string text = fmt::format("{} up", rank.gpu_nvlinks);
  if (rank.gpu_nvlink_bytes_per_s > 0)
    text += fmt::format(", {:.0f} GB/s", 1e-9 * rank.gpu_nvlink_bytes_per_s);
  return text;
}

/// The paths from a rank's GPU; "-" where nobody says.
std::vector<std::string> row_of(const RankInfo& rank, const Table& table) {
  std::map<std::int64_t, std::string> to_rank;
  for (GpuLink& link : links_from_text(rank.gpu_links)) to_rank[link.rank] = std::move(link.path);
  std::map<std::string, std::string> to_card;
  for (Nic& nic : nics_from_text(rank.nics)) to_card[nic.pci] = std::move(nic.path);
  std::vector<std::string> row;
  for (const std::int64_t other : table.ranks)
    row.push_back(other == rank.rank ? "X" : to_rank[other]);
  for (const Nic& nic : table.nics) row.push_back(to_card[nic.pci]);
  for (std::string& path : row)
    if (path.empty()) path.push_back('-');
  return row;
}

Table table_of(std::span<const RankInfo* const> ranks) {
  Table table;
  table.nics = nics_from_text(ranks.front()->nics);
  for (const RankInfo* rank : ranks) table.ranks.push_back(rank->rank);
  for (const RankInfo* rank : ranks) {
    table.paths.push_back(row_of(*rank, table));
    table.numa_nodes.push_back(rank->gpu_numa_node.empty() ? "-" : rank->gpu_numa_node);
    table.nvlinks.push_back(nvlink_text(*rank));
  }
  return table;
}

bool tells(const Table& table) {
  return std::ranges::any_of(table.paths, [](const auto& row) {
    return std::ranges::any_of(row,
                               [](const std::string& path) { return path != "X" && path != "-"; });
  });
}

/// "NV18 by switch" as "NV18*", and notes the words that need an explanation.
std::string cell(const std::string& path, std::set<std::string>& words) {
  if (path.starts_with("NV") && path.ends_with(kSwitched)) {
    words.insert("*");
    return path.substr(0, path.size() - kSwitched.size()) + "*";
  }
  words.insert(path);
  return path;
}

void add_table(const Table& table, const std::vector<std::string>& alike,
               std::vector<std::string>& lines, std::set<std::string>& words) {
  lines.push_back(
      fmt::format("links of ranks {}{}", ranges_text(table.ranks),
                  alike.empty() ? "" : fmt::format(" (alike: {})", fmt::join(alike, "; "))));
  std::string head = fmt::format("{:>6}", "rank");
  for (const std::int64_t rank : table.ranks) head += fmt::format("  {:>5}", rank);
  for (std::size_t i = 0; i < table.nics.size(); ++i)
    head += fmt::format("  {:>5}", fmt::format("NIC{}", i));
  lines.push_back(head + "  numa  NVLinks");
  for (std::size_t at = 0; at < table.ranks.size(); ++at) {
    std::string line = fmt::format("{:>6}", table.ranks[at]);
    for (const std::string& path : table.paths[at])
      line += fmt::format("  {:>5}", cell(path, words));
    lines.push_back(line + fmt::format("  {:>4}  {}", table.numa_nodes[at], table.nvlinks[at]));
  }
  for (std::size_t i = 0; i < table.nics.size(); ++i) {
    const Nic& nic = table.nics[i];
    lines.push_back(fmt::format(
        "  NIC{}: {} ({}) at {}{}", i, nic.name, nic.fabric ? "fabric" : "Ethernet", nic.pci,
        nic.numa_node.empty() ? "" : fmt::format(", NUMA node {}", nic.numa_node)));
  }
}

void add_meanings(const std::set<std::string>& words, std::vector<std::string>& lines) {
  static constexpr std::pair<std::string_view, std::string_view> kMeanings[] = {
      {"*", "by a switch"},
      {"PIX", "one PCIe switch at most"},
      {"PXB", "several PCIe switches"},
      {"PHB", "the host bridge"},
      {"NODE", "host bridges of one NUMA node"},
      {"SYS", "between NUMA nodes"}};
  std::string line;
  const auto add = [&](std::string_view word, std::string_view meaning) {
    line += fmt::format("{}{}: {}", line.empty() ? "  " : "; ", word, meaning);
  };
  if (std::ranges::any_of(words, [](const auto& word) { return word.starts_with("NV"); }) ||
      words.contains("*"))
    add("NV#", "that many NVLinks");
  for (const auto& [word, meaning] : kMeanings)
    if (words.contains(std::string(word))) add(word, meaning);
  if (!line.empty()) lines.push_back(line);
}

}  // namespace

std::vector<std::string> link_lines(std::span<const RankInfo> ranks) {
  std::vector<std::string> lines;
  if (ranks.size() < 2) return lines;
  std::map<std::string, std::vector<const RankInfo*>> hosts;
  for (const RankInfo& rank : ranks) hosts[rank.host].push_back(&rank);
  std::vector<Table> tables;
  for (const auto& [host, local] : hosts)
    if (Table table = table_of(local); tells(table)) tables.push_back(std::move(table));
  std::ranges::sort(tables, {}, [](const Table& table) { return table.ranks.front(); });
  std::set<std::string> words;
  while (!tables.empty()) {
    const Table first = tables.front();
    std::vector<std::string> alike;
    for (const Table& other : std::span(tables).subspan(1))
      if (first.alike(other)) alike.push_back(ranges_text(other.ranks));
    add_table(first, alike, lines, words);
    std::erase_if(tables, [&](const Table& one) { return first.alike(one); });
  }
  add_meanings(words, lines);
  return lines;
}

}  // namespace stowage::results
