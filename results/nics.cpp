// Network cards and their PCIe paths from a GPU, by hwloc.
#include <algorithm>
#include <cstdio>

#include <fmt/core.h>

#include "results/host_topology.hpp"
#include "results/links.hpp"

namespace stowage::results {
namespace {

using detail::Topology;

bool is_pci_bridge(hwloc_obj_t object) {
  return object->type == HWLOC_OBJ_BRIDGE &&
         object->attr->bridge.upstream_type == HWLOC_OBJ_BRIDGE_PCI;
}

std::vector<hwloc_obj_t> ancestors(hwloc_obj_t object) {
  std::vector<hwloc_obj_t> all;
  for (object = object->parent; object; object = object->parent) all.push_back(object);
  return all;
}

/// The PCIe path between two devices. A switch is a bridge upstream and one for each port below, so
/// two devices of one switch have at most their own port between them and what they share.
std::string path_between(hwloc_obj_t a, hwloc_obj_t b) {
  const std::vector<hwloc_obj_t> above_a = ancestors(a);
  const std::vector<hwloc_obj_t> above_b = ancestors(b);
  const auto shared = std::ranges::find_if(
      above_a, [&](hwloc_obj_t one) { return std::ranges::find(above_b, one) != above_b.end(); });
  if (shared == above_a.end()) return {};
  if ((*shared)->type == HWLOC_OBJ_BRIDGE && !is_pci_bridge(*shared)) return "PHB";
  if (is_pci_bridge(*shared)) {
    const auto ports =
        std::max(shared - above_a.begin(), std::ranges::find(above_b, *shared) - above_b.begin());
    return ports <= 1 ? "PIX" : "PXB";
  }
  return hwloc_bitmap_weight((*shared)->nodeset) == 1 ? "NODE" : "SYS";
}

std::string pci_text(hwloc_obj_t device) {
  const auto& at = device->attr->pcidev;
  return fmt::format("{:04x}:{:02x}:{:02x}.{:x}", at.domain, at.bus, at.dev, at.func);
}

/// The one NUMA node beside a device, if there is one.
std::string node_of(hwloc_topology_t topology, hwloc_obj_t device) {
  const hwloc_obj_t beside = hwloc_get_non_io_ancestor_obj(topology, device);
  if (!beside || hwloc_bitmap_weight(beside->nodeset) != 1) return {};
  return detail::list_of(beside->nodeset);
}

hwloc_obj_t pci_parent(hwloc_obj_t object) {
  while (object && object->type != HWLOC_OBJ_PCI_DEVICE) object = object->parent;
  return object;
}

}  // namespace

std::vector<Nic> nics_from(const std::string& gpu_pci) {
  std::vector<Nic> nics;
  const Topology topology = detail::load_topology(detail::Devices::included);
  if (!topology) return nics;
  const hwloc_obj_t gpu =
      gpu_pci.empty() ? nullptr : hwloc_get_pcidev_by_busidstring(topology.get(), gpu_pci.c_str());
  for (hwloc_obj_t device = nullptr;
       (device = hwloc_get_next_osdev(topology.get(), device)) != nullptr;) {
    const auto type = device->attr->osdev.type;
    if (type != HWLOC_OBJ_OSDEV_NETWORK && type != HWLOC_OBJ_OSDEV_OPENFABRICS) continue;
    const hwloc_obj_t card = pci_parent(device);
    if (!card) continue;  // of no slot, such as USB
    Nic nic{.name = device->name,
            .pci = pci_text(card),
            .fabric = type == HWLOC_OBJ_OSDEV_OPENFABRICS,
            .numa_node = node_of(topology.get(), card),
            .path = gpu ? path_between(gpu, card) : ""};
    const auto known = std::ranges::find(nics, nic.pci, &Nic::pci);
    if (known == nics.end())
      nics.push_back(std::move(nic));
    else if (nic.fabric && !known->fabric)
      *known = std::move(nic);
  }
  std::ranges::sort(nics, {}, &Nic::pci);
  return nics;
}

}  // namespace stowage::results
