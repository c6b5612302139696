#pragma once

#include <hwloc.h>

#include <memory>
#include <string>

/// What the sources of this folder share of hwloc: owned handles and lists of numbers. Included by
/// sources only.
namespace stowage::results::detail {

struct BitmapFree {
  void operator()(hwloc_bitmap_s* set) const { hwloc_bitmap_free(set); }
};
using Bitmap = std::unique_ptr<hwloc_bitmap_s, BitmapFree>;

struct TopologyDestroy {
  void operator()(hwloc_topology* topology) const { hwloc_topology_destroy(topology); }
};
using Topology = std::unique_ptr<hwloc_topology, TopologyDestroy>;

enum class Devices { left_out, included };

/// This host; nullptr if hwloc fails.
/// @param devices whether PCI devices and what the system calls them are in it, which takes longer
Topology load_topology(Devices devices);

/// A set as "0,2-3".
std::string list_of(hwloc_const_bitmap_t set);

/// Whether a list such as "0,2-3" has a number.
bool list_has(const std::string& list, const std::string& number);

}  // namespace stowage::results::detail
