#pragma once

#include "parallel/job/mpi.hpp"
#include "results/provenance.hpp"
#include "run/measure/gpu_monitor.hpp"

namespace stowage::run {

/// Collective. Fills in how this rank's GPU reaches those of the other ranks of its host.
/// @param host the ranks of the host, each with a GPU
/// @param device this rank's GPU among those that its process sees
/// @param info its rank, GPU's UUID and PCI slot are known
void describe_links(const parallel::Communicator& host, int device, const GpuMonitor& monitor,
                    results::RankInfo& info);

}  // namespace stowage::run
