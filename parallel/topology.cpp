#include "parallel/topology.hpp"

#include <hwloc.h>

#include <array>
#include <cstdlib>
#include <memory>
#include <type_traits>

namespace stowage::parallel {
namespace {

struct DestroyTopology {
  void operator()(hwloc_topology_t topology) const { hwloc_topology_destroy(topology); }
};
using Topology = std::unique_ptr<std::remove_pointer_t<hwloc_topology_t>, DestroyTopology>;

struct FreeBitmap {
  void operator()(hwloc_bitmap_t bitmap) const { hwloc_bitmap_free(bitmap); }
};
using Bitmap = std::unique_ptr<std::remove_pointer_t<hwloc_bitmap_t>, FreeBitmap>;

Topology load_topology() {
  hwloc_topology_t raw = nullptr;
  if (hwloc_topology_init(&raw) != 0) execution::throw_environment("hwloc cannot be initialised");
  Topology topology(raw);
  if (hwloc_topology_load(raw) != 0)
    execution::throw_environment("hwloc cannot read the machine's topology");
  return topology;
}

/// "0-3,8"
std::string list(hwloc_const_bitmap_t bitmap) {
  char* text = nullptr;
  if (hwloc_bitmap_list_asprintf(&text, bitmap) < 0) return {};
  const std::unique_ptr<char, decltype(&std::free)> owner(text, &std::free);
  return text;
}

std::string cpu_model(hwloc_topology_t topology) {
  const hwloc_obj_t package = hwloc_get_obj_by_type(topology, HWLOC_OBJ_PACKAGE, 0);
  const char* model =
      package == nullptr ? nullptr : hwloc_obj_get_info_by_name(package, "CPUModel");
  return model == nullptr ? "unknown" : model;
}

std::string synthetic(hwloc_topology_t topology) {
  std::array<char, 1024> text{};
  const auto flags = HWLOC_TOPOLOGY_EXPORT_SYNTHETIC_FLAG_NO_ATTRS |
                     HWLOC_TOPOLOGY_EXPORT_SYNTHETIC_FLAG_IGNORE_MEMORY;
  if (hwloc_topology_export_synthetic(topology, text.data(), text.size(), flags) < 0)
    return "irregular";
  return text.data();
}

/// Calls `f` with every field, in the order of the text between ranks: one line each.
template <class F>
void for_each_field(RankPlace& place, F&& f) {
  f(place.rank);
  f(place.local_rank);
  f(place.host);
  f(place.cpu_model);
  f(place.topology);
  f(place.cpuset);
  f(place.numa_nodes);
  f(place.cpus);
  f(place.cores);
  f(place.memory_bytes);
}

std::string to_text(RankPlace place) {
  std::string text;
  for_each_field(place, [&](const auto& field) { text += fmt::format("{}\n", field); });
  return text;
}

RankPlace from_text(const std::string& text) {
  RankPlace place;
  std::size_t at = 0;
  for_each_field(place, [&](auto& field) {
    const std::size_t stop = text.find('\n', at);
    const std::string value = text.substr(at, stop - at);
    at = stop + 1;
    if constexpr (std::is_same_v<std::decay_t<decltype(field)>, std::string>)
      field = value;
    else
      field = std::stoll(value);
  });
  return place;
}

}  // namespace

RankPlace this_place() {
  const Topology owner = load_topology();
  hwloc_topology_t topology = owner.get();
  const Bitmap cpus(hwloc_bitmap_alloc());
  const Bitmap nodes(hwloc_bitmap_alloc());
  if (hwloc_get_cpubind(topology, cpus.get(), HWLOC_CPUBIND_PROCESS) != 0)
    hwloc_bitmap_copy(cpus.get(), hwloc_topology_get_allowed_cpuset(topology));
  hwloc_cpuset_to_nodeset(topology, cpus.get(), nodes.get());
  RankPlace place;
  place.host = host_name();
  place.cpu_model = cpu_model(topology);
  place.topology = synthetic(topology);
  place.cpuset = list(cpus.get());
  place.numa_nodes = list(nodes.get());
  place.cpus = hwloc_bitmap_weight(cpus.get());
  place.cores = hwloc_get_nbobjs_inside_cpuset_by_type(topology, cpus.get(), HWLOC_OBJ_CORE);
  place.memory_bytes = narrow<std::int64_t>(hwloc_get_root_obj(topology)->total_memory);
  return place;
}

std::vector<RankPlace> gather_places(const Communicator& ranks) {
  RankPlace place = this_place();
  place.rank = ranks.rank();
  place.local_rank = ranks.split_by_host().rank();
  std::vector<RankPlace> places;
  for (const std::string& text : ranks.gather(to_text(place))) places.push_back(from_text(text));
  return places;
}

}  // namespace stowage::parallel
