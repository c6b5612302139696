#pragma once

#include <fmt/core.h>

#include <string>
#include <vector>

#include "results/links.hpp"
#include "results/provenance.hpp"

/// Machines that the tests of links and warnings judge.
namespace stowage::results::test {

using Lines = std::vector<std::string>;

/// Ranks of one host with eight GPUs behind switches, four on each NUMA node with a card of its
/// own: nothing is wrong with it.
inline std::vector<RankInfo> eight_gpus() {
  std::vector<RankInfo> ranks(8);
  for (std::int64_t r = 0; r < 8; ++r) {
    RankInfo& rank = ranks[static_cast<std::size_t>(r)];
    rank.rank = r;
    rank.host = "n1";
    rank.cpus = rank.threads = 8;
    rank.gpu_name = "a board";
    rank.gpu_mode = "ecc on";
    rank.gpu_numa_node = rank.numa_nodes = r < 4 ? "0" : "1";
    rank.gpu_clock_hz = 1.98e9;
    rank.gpu_power_limit_w = rank.gpu_default_limit_w = 700;
    rank.gpu_nvlinks = 18;
    rank.gpu_nvlink_bytes_per_s = 478e9;
    std::vector<GpuLink> links;
    for (std::int64_t other = 0; other < 8; ++other)
      if (other != r) links.push_back({other, "NV18 by switch"});
    rank.gpu_links = to_text(links);
    rank.nics =
        to_text(std::vector<Nic>{{"mlx5_0", "0000:3c:00.0", true, "0", r < 4 ? "PXB" : "SYS"},
                                 {"mlx5_1", "0000:bc:00.0", true, "1", r < 4 ? "SYS" : "PXB"}});
  }
  return ranks;
}

}  // namespace stowage::results::test
