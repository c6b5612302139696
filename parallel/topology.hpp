#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "parallel/mpi.hpp"

namespace stowage::parallel {

/// Where a rank runs, as hwloc sees it.
struct RankPlace {
  std::int64_t rank = 0;
  std::int64_t local_rank = 0;  ///< among the ranks of its host
  std::string host;
  std::string cpu_model;
  std::string topology;           ///< hwloc's synthetic form: "Package:1 L3Cache:1 Core:2 PU:1"
  std::string cpuset;             ///< logical CPUs that the rank may use: "0-15"
  std::string numa_nodes;         ///< the NUMA nodes of these CPUs: "0"
  std::int64_t cpus = 0;          ///< in cpuset
  std::int64_t cores = 0;         ///< all of whose CPUs are in cpuset
  std::int64_t memory_bytes = 0;  ///< of the host
};

/// This process; rank and local_rank are left 0.
RankPlace this_place();

/// Collective. The places of all ranks in rank order, on rank 0; empty elsewhere.
std::vector<RankPlace> gather_places(const Communicator& ranks);

}  // namespace stowage::parallel
