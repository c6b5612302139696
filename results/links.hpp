#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "results/provenance.hpp"

/// How the GPUs of a host reach each other and the network.
///
/// A path is one of nvidia-smi's words: PIX (one PCIe switch at most), PXB (several), PHB (the host
/// bridge), NODE (host bridges of one NUMA node), SYS (between NUMA nodes); or NVLinks: "NV4",
/// "NV18 by switch". Empty: nobody says.
namespace stowage::results {

/// The way from a rank's GPU to that of another rank of its host.
struct GpuLink {
  std::int64_t rank = 0;  ///< the other one
  std::string path;
};

/// A network card of the host.
struct Nic {
  std::string name;  ///< the system's: "mlx5_0", "eth0"
  std::string pci;
  bool fabric = false;    ///< InfiniBand, RoCE or Omni-Path; otherwise plain Ethernet
  std::string numa_node;  ///< empty: the host does not say
  std::string path;       ///< from the rank's GPU
};

/// As members of RankInfo hold them: "1 NV18 by switch, 2 SYS" and
/// "mlx5_0 0000:3c:00.0 fabric 0 PIX, eth0 0000:02:00.0 ethernet - SYS". Links without a path are
/// left out.
std::string to_text(std::span<const GpuLink> links);
std::string to_text(std::span<const Nic> nics);
std::vector<GpuLink> links_from_text(std::string_view text);
std::vector<Nic> nics_from_text(std::string_view text);

/// The network cards of this host, by hwloc, with the paths from the GPU in a PCI slot. A card that
/// the system has several names for is here once, by that of its fabric.
std::vector<Nic> nics_from(const std::string& gpu_pci);

/// Numbers in increasing order as "0-3,8".
std::string ranges_text(std::span<const std::int64_t> numbers);

/// For each kind of host in the job a table of the paths between its ranks' GPUs and to its network
/// cards, and what its words mean. No names of hosts. Empty: one rank, or nothing is known.
std::vector<std::string> link_lines(std::span<const RankInfo> ranks);

}  // namespace stowage::results
