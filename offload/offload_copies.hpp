#pragma once

#include <cstddef>
#include <vector>

#include "offload/rates.hpp"
#include "offload/reruns.hpp"
#include "offload/saved_tensors.hpp"

namespace stowage::offload {

/// One section of a plan before its steps are made: what runs, and when if no copy is waited for.
struct ComputeTimeline {
  std::vector<Run> runs;
  std::vector<double> start_s;  ///< of each run, from the section's start; one more for its end
};

/// What every draft asks of a program's ops, by index.
struct OpFacts {
  OpFacts(const execution::Program& program, const Rates& rates);

  std::vector<double> time_s;  ///< alone on the machine
  std::vector<char> backward;
};

ComputeTimeline make_timeline(const execution::Program& program, const Reruns& reruns, int section,
                              const std::vector<execution::Decision>& decisions,
                              const OpFacts& ops);

/// One buffer's way to the host and back. Indices are of the timeline's runs.
struct OffloadCopy {
  execution::Tensor tensor;
  int buffer = 0;
  std::size_t bytes = 0;
  std::size_t moved = 0;  ///< bytes that a copy is expected to move
  int written = 0;        ///< the copy to the host starts behind this run
  int last_forward = 0;   ///< last run that uses the first residence
  int released = 0;       ///< the first residence ends before this run
  int back = 0;           ///< the copy back is issued before this run
  int needed = 0;         ///< first run that uses the second residence
  double out_end_s = 0;   ///< predicted end of the copy to the host
  double back_begin_s = 0;
};

/// The copies of all offloaded tensors of a section, in the order in which they leave.
std::vector<OffloadCopy> find_offload_copies(const execution::Program& program,
                                             const std::vector<SavedTensor>& saved,
                                             const std::vector<execution::Decision>& decisions,
                                             std::size_t min_bytes, int section,
                                             const ComputeTimeline& timeline, const OpFacts& ops);

/// Sets when each copy starts, by a model of the two directions: to the host as soon as the bytes
/// are written, in order; back as late as all copies still arrive in time, with a margin.
/// @return by how much the latest copy back misses its run
double schedule(std::vector<OffloadCopy>& copies, const ComputeTimeline& timeline,
                const Rates& rates);

/// Predicted time of a section with its copies as they are scheduled: a run waits where bytes are
/// released before their copy is done, and for what it needs.
double section_time_s(const std::vector<OffloadCopy>& copies, const ComputeTimeline& timeline,
                      const Rates& rates);

/// Ends first residences earlier, the oldest first, so that no more than `limit` bytes are live at
/// any run if that can be: who takes the bytes waits for their copies.
/// @param live bytes that are live at each run; changed
void evict_early(std::vector<OffloadCopy>& copies, std::vector<std::size_t>& live,
                 std::size_t limit, std::size_t alignment);

/// Issues copies back earlier where memory allows, so that an error of the model is not waited for.
/// @param live bytes that are live at each run, without what is prefetched early; changed
/// @param limit live bytes that may not be passed
void prefetch_early(std::vector<OffloadCopy>& copies, const ComputeTimeline& timeline,
                    std::vector<std::size_t>& live, std::size_t limit, std::size_t alignment);

}  // namespace stowage::offload
