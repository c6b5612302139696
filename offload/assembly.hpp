#pragma once

#include <vector>

#include "execution/persistent.hpp"
#include "execution/plan.hpp"
#include "offload/gradient_memory_reuse.hpp"
#include "offload/offload_copies.hpp"

namespace stowage::offload {

/// One section to be turned into steps.
struct SectionSchedule {
  ComputeTimeline timeline;
  std::vector<OffloadCopy> copies;
  std::vector<int> steps;  ///< set by assemble(): the step of each run
};

/// Makes steps and places, without offsets (but those in gradient memory) and without edges (but
/// the caps').
///
/// A copy to the host follows the run that writes the bytes; a copy back comes just before the run
/// that OffloadCopy::back names; a mark keeps the first residence's bytes until the copy is
/// predicted to be done, so that nobody who takes them has to wait.
execution::Plan assemble(const execution::Program& program,
                         const execution::PersistentLayout& layout,
                         const GradientMemoryReuse& reuse,
                         const std::vector<execution::Decision>& decisions,
                         const execution::CopyCaps& caps, std::vector<SectionSchedule>& sections);

}  // namespace stowage::offload
