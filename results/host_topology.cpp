#include "results/host_topology.hpp"

#include <cstdlib>

namespace stowage::results::detail {

Topology load_topology(Devices devices) {
  hwloc_topology_t topology = nullptr;
  if (hwloc_topology_init(&topology) != 0) return nullptr;
  Topology owned(topology);
  // Without libpciaccess, which leaks what it allocates at each load, hwloc reads sysfs by itself.
  hwloc_topology_set_components(topology, HWLOC_TOPOLOGY_COMPONENTS_FLAG_BLACKLIST, "pci");
  if (devices == Devices::included)
    hwloc_topology_set_io_types_filter(topology, HWLOC_TYPE_FILTER_KEEP_IMPORTANT);
  return hwloc_topology_load(topology) == 0 ? std::move(owned) : nullptr;
}

std::string list_of(hwloc_const_bitmap_t set) {
  char* text = nullptr;
  if (hwloc_bitmap_list_asprintf(&text, set) < 0 || !text) return {};
  std::string copy = text;
  std::free(text);
  return copy;
}

bool list_has(const std::string& list, const std::string& number) {
  const Bitmap all(hwloc_bitmap_alloc());
  hwloc_bitmap_list_sscanf(all.get(), list.c_str());
  return hwloc_bitmap_isset(all.get(), static_cast<unsigned>(std::stoul(number))) != 0;
}

}  // namespace stowage::results::detail
