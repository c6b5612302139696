// The machine as each rank sees it, and what differs between ranks.
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <fstream>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <type_traits>

#include "execution/error.hpp"
#include "results/host_topology.hpp"
#include "results/provenance.hpp"

namespace stowage::results {
namespace {

using detail::Bitmap;
using detail::list_of;
using detail::Topology;

std::string synthetic(hwloc_topology_t topology) {
  std::string text(1024, '\0');
  const int length = hwloc_topology_export_synthetic(topology, text.data(), text.size(),
                                                     HWLOC_TOPOLOGY_EXPORT_SYNTHETIC_FLAG_NO_ATTRS);
  text.resize(length > 0 ? std::min<std::size_t>(static_cast<std::size_t>(length), 1023) : 0);
  return text;
}

void describe_cpus(RankInfo& info) {
  const Topology topology = detail::load_topology(detail::Devices::left_out);
  if (!topology) return;
  info.topology = synthetic(topology.get());
  if (const auto package = hwloc_get_obj_by_type(topology.get(), HWLOC_OBJ_PACKAGE, 0))
    if (const char* model = hwloc_obj_get_info_by_name(package, "CPUModel")) info.cpu_model = model;
  const auto machine = hwloc_get_root_obj(topology.get());
  info.memory_bytes = static_cast<std::int64_t>(machine->total_memory);
  const Bitmap cpus(hwloc_bitmap_alloc());
  const Bitmap nodes(hwloc_bitmap_alloc());
  if (hwloc_get_cpubind(topology.get(), cpus.get(), HWLOC_CPUBIND_PROCESS) != 0)
    hwloc_bitmap_copy(cpus.get(), machine->cpuset);
  hwloc_cpuset_to_nodeset(topology.get(), cpus.get(), nodes.get());
  info.cpuset = list_of(cpus.get());
  info.numa_nodes = list_of(nodes.get());
  info.cpus = hwloc_bitmap_weight(cpus.get());
}

template <class T>
std::string shown(const T& value) {
  return fmt::format("{}", value);
}

// The value that most ranks have; ties go to the lowest rank's.
template <class T>
T most_common(std::span<const RankInfo> ranks, T RankInfo::*field) {
  T best = ranks.front().*field;
  std::ptrdiff_t most = 0;
  for (const auto& candidate : ranks) {
    const auto same = [&](const RankInfo& rank) { return rank.*field == candidate.*field; };
    const auto count = std::count_if(ranks.begin(), ranks.end(), same);
    if (count > most) most = count, best = candidate.*field;
  }
  return best;
}

// All CPUs of a node are allowed when nothing is bound; with several ranks there, these then share.
void report_sharing(std::span<const RankInfo> ranks, std::vector<std::string>& rows) {
  std::map<std::string, std::vector<const RankInfo*>> hosts;
  for (const auto& rank : ranks) hosts[rank.host].push_back(&rank);
  for (const auto& [host, local] : hosts) {
    const Bitmap seen(hwloc_bitmap_alloc());
    const Bitmap shared(hwloc_bitmap_alloc());
    for (const RankInfo* rank : local) {
      const Bitmap own(hwloc_bitmap_alloc());
      const Bitmap both(hwloc_bitmap_alloc());
      hwloc_bitmap_list_sscanf(own.get(), rank->cpuset.c_str());
      hwloc_bitmap_and(both.get(), seen.get(), own.get());
      hwloc_bitmap_or(shared.get(), shared.get(), both.get());
      hwloc_bitmap_or(seen.get(), seen.get(), own.get());
    }
    if (!hwloc_bitmap_iszero(shared.get()))
      rows.push_back(fmt::format("{} ranks on host {} share CPUs {}: they are not bound apart",
                                 local.size(), host, list_of(shared.get())));
  }
}

}  // namespace

RankInfo this_rank(std::int64_t rank, std::int64_t threads) {
  RankInfo info;
  info.rank = rank;
  info.threads = threads;
  utsname names{};
  if (uname(&names) == 0) {
    info.host = names.nodename;
    info.kernel = fmt::format("{} {}", names.sysname, names.release);
  }
  describe_cpus(info);
  return info;
}

std::string numa_node_of(std::string pci) {
  for (char& c : pci) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  std::ifstream file("/sys/bus/pci/devices/" + pci + "/numa_node");
  int node = -1;  // also what the kernel says where there is one node only
  return file >> node && node >= 0 ? fmt::format("{}", node) : "";
}

std::string to_text(const RankInfo& info) {
  nlohmann::json json;
  for_each_rank_field([&](const char* field, auto member, bool) { json[field] = info.*member; });
  return json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

RankInfo rank_from_text(const std::string& text) {
  const auto json = nlohmann::json::parse(text);
  RankInfo info;
  for_each_rank_field([&](const char* field, auto member, bool) {
    const auto& value = json.at(field);
    if constexpr (std::is_same_v<decltype(member), double RankInfo::*>) {
      if (value.is_null()) {  // what JSON has for NaN: the board does not say
        info.*member = std::numeric_limits<double>::quiet_NaN();
        return;
      }
    }
    value.get_to(info.*member);
  });
  return info;
}

std::vector<std::string> differences(std::span<const RankInfo> ranks) {
  std::vector<std::string> rows;
  if (ranks.size() < 2) return rows;
  for_each_rank_field([&](const char* field, auto member, bool must_agree) {
    if (!must_agree) return;
    const auto usual = most_common(ranks, member);
    for (const auto& rank : ranks)
      if (rank.*member != usual)
        rows.push_back(fmt::format("rank {} (host {}): {} is '{}', most ranks have '{}'", rank.rank,
                                   rank.host, field, shown(rank.*member), shown(usual)));
  });
  report_sharing(ranks, rows);
  return rows;
}

}  // namespace stowage::results
