// What could be better about the machine of each rank, even if all ranks are alike.
#include <fmt/core.h>

#include <algorithm>
#include <map>
#include <set>

#include "results/host_topology.hpp"
#include "results/links.hpp"

namespace stowage::results {
namespace {

using Rows = std::vector<std::string>;

/// Pairs of ranks of one host that are named one by one; more of them are counted.
constexpr std::size_t kMostPairs = 4;

void judge_place(const RankInfo& rank, Rows& rows) {
  if (!rank.gpu_numa_node.empty() && !detail::list_has(rank.numa_nodes, rank.gpu_numa_node))
    rows.push_back(fmt::format(
        "rank {}: its CPUs are on NUMA node {}, its GPU on {}: copies and launches cross between "
        "them",
        rank.rank, rank.numa_nodes, rank.gpu_numa_node));
  if (rank.cpus > 0 && rank.threads > rank.cpus)
    rows.push_back(
        fmt::format("rank {}: {} threads share {} CPUs", rank.rank, rank.threads, rank.cpus));
}

void judge_board(const RankInfo& rank, Rows& rows) {
  if (rank.gpu_default_limit_w > 0 && rank.gpu_power_limit_w < rank.gpu_default_limit_w)
    rows.push_back(fmt::format("rank {}: its GPU may use {:.0f} W of {:.0f} W", rank.rank,
                               rank.gpu_power_limit_w, rank.gpu_default_limit_w));
  if (rank.gpu_clock_limit_hz > 0 && rank.gpu_clock_limit_hz < rank.gpu_clock_hz)
    rows.push_back(fmt::format("rank {}: its GPU may run at {:.0f} MHz of {:.0f} MHz", rank.rank,
                               1e-6 * rank.gpu_clock_limit_hz, 1e-6 * rank.gpu_clock_hz));
  if (!rank.gpu_clock_events.empty())
    rows.push_back(fmt::format("rank {}: its GPU's clock was held down before the run: {}",
                               rank.rank, rank.gpu_clock_events));
  if (rank.gpu_mode.find("ecc off") != std::string::npos)
    rows.push_back(
        fmt::format("rank {}: ECC of its GPU is off: errors of memory go unseen", rank.rank));
  if (rank.gpu_ecc_errors > 0)
    rows.push_back(fmt::format(
        "rank {}: its GPU has had {} memory error{} that ECC could not correct since its driver "
        "was loaded",
        rank.rank, rank.gpu_ecc_errors, rank.gpu_ecc_errors == 1 ? "" : "s"));
}

/// Boards without bridges have links that are down too: only others that have more make it a fault.
void judge_nvlinks(std::span<const RankInfo* const> local, Rows& rows) {
  for (const RankInfo* rank : local) {
    std::int64_t most = 0;
    for (const RankInfo* other : local)
      if (other->gpu_name == rank->gpu_name) most = std::max(most, other->gpu_nvlinks);
    if (rank->gpu_nvlinks_down > 0 && rank->gpu_nvlinks < most)
      rows.push_back(
          fmt::format("rank {}: {} of its GPU's NVLinks are up and {} down, others of its host "
                      "have {}: its exchanges slow all of them down",
                      rank->rank, rank->gpu_nvlinks, rank->gpu_nvlinks_down, most));
  }
}

/// Cards of a fabric are there for jobs like this one: beside them, Ethernet is for other things.
void judge_nics(const RankInfo& rank, Rows& rows) {
  std::vector<Nic> nics = nics_from_text(rank.nics);
  if (rank.gpu_numa_node.empty() || nics.empty()) return;
  if (std::ranges::any_of(nics, &Nic::fabric))
    std::erase_if(nics, [](const Nic& nic) { return !nic.fabric; });
  std::set<std::string> nodes;
  for (const Nic& nic : nics) nodes.insert(nic.numa_node);
  if (nodes.contains("") || nodes.contains(rank.gpu_numa_node)) return;
  rows.push_back(
      fmt::format("rank {}: its GPU is on NUMA node {}, the nearest network card on {}: what "
                  "leaves the host crosses between them",
                  rank.rank, rank.gpu_numa_node, *nodes.begin()));
}

using Pairs = std::vector<std::pair<std::int64_t, std::int64_t>>;

/// Pairs of ranks of which one has the other in a list.
Pairs pairs_in(std::span<const RankInfo* const> local, std::string RankInfo::*list) {
  const auto has = [list](const RankInfo* one, const RankInfo* other) {
    return detail::list_has(one->*list, fmt::format("{}", other->rank));
  };
  Pairs pairs;
  for (std::size_t a = 0; a < local.size(); ++a)
    for (std::size_t b = a + 1; b < local.size(); ++b)
      if (has(local[a], local[b]) || has(local[b], local[a]))
        pairs.emplace_back(local[a]->rank, local[b]->rank);
  return pairs;
}

void add_pairs(const Pairs& pairs, std::string_view what, Rows& rows) {
  const std::size_t named = pairs.size() > kMostPairs ? 1 : pairs.size();
  for (std::size_t at = 0; at < named; ++at) {
    const std::string more =
        named == pairs.size()
            ? ""
            : fmt::format(" (and {} more pairs of their host)", pairs.size() - named);
    rows.push_back(
        fmt::format("ranks {} and {}{}: {}", pairs[at].first, pairs[at].second, more, what));
  }
}

void judge_peers(std::span<const RankInfo* const> local, Rows& rows) {
  add_pairs(pairs_in(local, &RankInfo::gpu_unreached),
            "their GPUs cannot reach each other's memory: what they exchange goes through the "
            "host's",
            rows);
  add_pairs(pairs_in(local, &RankInfo::gpu_hidden),
            "one is not shown the other's GPU (CUDA_VISIBLE_DEVICES, or the launcher's binding): "
            "they cannot copy into each other's memory",
            rows);
}

}  // namespace

std::vector<std::string> warnings(std::span<const RankInfo> ranks) {
  Rows rows;
  std::map<std::string, std::vector<const RankInfo*>> hosts;
  for (const RankInfo& rank : ranks) hosts[rank.host].push_back(&rank);
  for (const RankInfo& rank : ranks) {
    judge_place(rank, rows);
    judge_board(rank, rows);
    if (hosts.size() > 1) judge_nics(rank, rows);  // within a host no card is used
  }
  for (const auto& [host, local] : hosts) {
    judge_nvlinks(local, rows);
    judge_peers(local, rows);
  }
  return rows;
}

}  // namespace stowage::results
