#pragma once

#include <cstddef>
#include <vector>

#include "offload/cargo.hpp"
#include "offload/rates.hpp"
#include "offload/reruns.hpp"

namespace stowage::offload {

/// One section of a plan before its steps are made: what runs, and when if no copy is waited for.
struct Itinerary {
  std::vector<Run> runs;
  std::vector<double> start_s;  ///< of each run, from the section's start; one more for its end
};

Itinerary make_itinerary(const execution::Program& program, const Reruns& reruns, int section,
                         const std::vector<execution::Decision>& decisions, const Rates& rates);

/// One buffer's way to the host and back. Indices are of the itinerary's runs.
struct Voyage {
  execution::Tensor tensor;
  int buffer = 0;
  std::size_t bytes = 0;
  std::size_t moved = 0;  ///< bytes that a copy is expected to move
  int written = 0;        ///< the copy to the host starts behind this run
  int last_forward = 0;   ///< last run that uses the first stay
  int released = 0;       ///< the first stay ends before this run
  int back = 0;           ///< the copy back is issued before this run
  int needed = 0;         ///< first run that uses the second stay
  double out_end_s = 0;   ///< predicted end of the copy to the host
  double back_begin_s = 0;
};

/// The voyages of all offloaded tensors of a section, in the order in which they leave.
std::vector<Voyage> find_voyages(const execution::Program& program, const std::vector<Cargo>& cargo,
                                 const std::vector<execution::Decision>& decisions,
                                 std::size_t min_bytes, int section, const Itinerary& itinerary);

/// Sets when each copy starts, by a model of the two directions: to the host as soon as the bytes
/// are written, in order; back as late as all copies still arrive in time, with a margin.
/// @return by how much the latest copy back misses its run
double schedule(std::vector<Voyage>& voyages, const Itinerary& itinerary, const Rates& rates);

/// Predicted time of a section with its voyages as they are scheduled: a run waits where bytes are
/// released before their copy is done, and for what it needs.
double travel_time_s(const std::vector<Voyage>& voyages, const Itinerary& itinerary,
                     const Rates& rates);

/// Ends first stays earlier, the oldest first, so that no more than `limit` bytes are live at any
/// run if that can be: who takes the bytes waits for their copies.
/// @param live bytes that are live at each run; changed
void squeeze(std::vector<Voyage>& voyages, std::vector<std::size_t>& live, std::size_t limit,
             std::size_t alignment);

/// Issues copies back earlier where memory allows, so that an error of the model is not waited for.
/// @param live bytes that are live at each run, without what is hoisted; changed
/// @param limit live bytes that may not be passed
void hoist(std::vector<Voyage>& voyages, const Itinerary& itinerary, std::vector<std::size_t>& live,
           std::size_t limit, std::size_t alignment);

}  // namespace stowage::offload
