#include "run/measure/gpu_links.hpp"

#include <fmt/core.h>

#include <sstream>
#include <vector>

#include "execution/cuda_backend.hpp"
#include "results/links.hpp"
#include "run/measure/nvlinks.hpp"

namespace stowage::run {
namespace {

struct Peer {
  std::int64_t rank = 0;
  std::string uuid, pci;
};

/// Collective. All ranks of the host.
std::vector<Peer> peers_of(const parallel::Communicator& host, const results::RankInfo& info) {
  const std::string mine = fmt::format("{} {} {}\n", info.rank, info.gpu_uuid, info.gpu_pci);
  std::string joined;
  for (const std::string& one : host.gather(mine)) joined += one;
  std::istringstream words(host.broadcast(joined));
  std::vector<Peer> peers;
  for (Peer peer; words >> peer.rank >> peer.uuid >> peer.pci;) peers.push_back(peer);
  return peers;
}

}  // namespace

void describe_links(const parallel::Communicator& host, int device, const GpuMonitor& monitor,
                    results::RankInfo& info) {
  const std::vector<Peer> peers = peers_of(host, info);
  const Nvml& nvml = monitor.nvml();
  const NvLinks links = read_nvlinks(nvml, monitor.device());
  std::vector<results::GpuLink> paths;
  std::vector<std::int64_t> unreached, hidden;
  for (const Peer& peer : peers) {
    if (peer.pci == info.gpu_pci) continue;  // this rank, or another part of the same board
    paths.push_back(
        {peer.rank, gpu_path(nvml, monitor.device(), links, nvml.device(peer.uuid), peer.pci)});
    const execution::PeerAccess access = execution::peer_access(device, peer.pci);
    if (access == execution::PeerAccess::no) unreached.push_back(peer.rank);
    if (access == execution::PeerAccess::hidden) hidden.push_back(peer.rank);
  }
  info.gpu_links = results::to_text(paths);
  info.gpu_unreached = results::ranges_text(unreached);
  info.gpu_hidden = results::ranges_text(hidden);
}

}  // namespace stowage::run
