#include "run/measure/nvlinks.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <filesystem>
#include <utility>

namespace stowage::run {
namespace {

// Of NVML's definitions.
constexpr unsigned kMostLinks = 36;
constexpr unsigned kLinkSpeed = 164;  ///< field: MB/s of the link in scopeId
constexpr int kIsGpu = 0;
constexpr int kIsSwitch = 2;

/// nvmlPciInfo_t
struct PciInfo {
  char old_id[16];
  unsigned domain, bus, device, kind, subsystem;
  char id[32];  ///< "00000000:3B:00.0"
};

/// nvmlFieldValue_t
struct FieldValue {
  unsigned field, scope;
  long long timestamp, latency_us;
  int type, code;
  union {
    unsigned number;
    unsigned long long room;
  } value;
};

constexpr std::pair<int, const char*> kPaths[] = {
    {10, "PIX"}, {20, "PXB"}, {30, "PHB"}, {40, "NODE"}, {50, "SYS"}};

double link_bytes_per_s(const Nvml& nvml, Nvml::Device gpu, unsigned link) {
  FieldValue speed{};
  speed.field = kLinkSpeed;
  speed.scope = link;
  const int count = 1;
  if (!nvml.call("nvmlDeviceGetFieldValues", gpu, count, &speed) || speed.code != 0) return 0;
  return 1e6 * speed.value.number;
}

/// Virtual machines are shown their GPUs, but not the switches between them.
bool is_shown(const std::string& pci) {
  return std::filesystem::exists("/sys/bus/pci/devices/" + pci);
}

void add_other_end(const Nvml& nvml, Nvml::Device gpu, unsigned link, NvLinks& links) {
  int kind = -1;
  PciInfo other{};
  (void)nvml.call("nvmlDeviceGetNvLinkRemoteDeviceType", gpu, link, &kind);
  std::string pci;
  if (nvml.call("nvmlDeviceGetNvLinkRemotePciInfo_v2", gpu, link, &other))
    pci = fmt::format("{:04x}:{:02x}:{:02x}.0", other.domain, other.bus, other.device);
  if (kind == kIsSwitch || (kind != kIsGpu && !pci.empty() && !is_shown(pci)))
    ++links.to_switch;
  else if (!pci.empty())
    ++links.to[pci];
}

}  // namespace

NvLinks read_nvlinks(const Nvml& nvml, Nvml::Device gpu) {
  NvLinks links;
  if (gpu == nullptr) return links;
  for (unsigned link = 0; link < kMostLinks; ++link) {
    int on = 0;
    if (!nvml.call("nvmlDeviceGetNvLinkState", gpu, link, &on)) continue;
    ++(on != 0 ? links.up : links.down);
    if (on == 0) continue;
    links.bytes_per_s += link_bytes_per_s(nvml, gpu, link);
    add_other_end(nvml, gpu, link, links);
  }
  return links;
}

std::string gpu_path(const Nvml& nvml, Nvml::Device gpu, const NvLinks& links, Nvml::Device other,
                     const std::string& other_pci) {
  if (gpu == nullptr || other == nullptr) return {};
  if (const auto direct = links.to.find(other_pci); direct != links.to.end())
    return fmt::format("NV{}", direct->second);
  const std::int64_t switched = std::min(links.to_switch, read_nvlinks(nvml, other).to_switch);
  if (switched > 0) return fmt::format("NV{} by switch", switched);
  int shared = 0;
  if (!nvml.call("nvmlDeviceGetTopologyCommonAncestor", gpu, other, &shared)) return {};
  for (const auto& [level, name] : kPaths)
    if (level == shared) return name;
  return {};
}

}  // namespace stowage::run
