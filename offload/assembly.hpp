#pragma once

#include <optional>
#include <vector>

#include "execution/persistent.hpp"
#include "execution/plan.hpp"
#include "offload/gradient_memory_reuse.hpp"
#include "offload/offload_copies.hpp"

namespace stowage::offload {

/// A run of a section's timeline.
struct RunAt {
  int section = 0;
  int run = 0;
};

/// The stay on the device of a range of a tensor that has its home on the host, for one op.
struct StateWindow {
  execution::Tensor tensor;
  std::size_t first = 0;  ///< byte of the tensor
  std::size_t bytes = 0;
  std::size_t home = 0;  ///< where the range begins in the host's region
  bool reads = true;     ///< the range is loaded
  bool writes = true;    ///< and written back behind the op
  int run = 0;           ///< of the op
  RunAt load = {};       ///< the load is issued before this run
  /// The earlier window in whose bytes it lies, counted over all sections; -1: it has its own.
  int stays_from = -1;
  bool writes_back = true;  ///< false: a later window in the same bytes is written back instead
  /// The write-back is carried: the window keeps its bytes up to this run of the next execution.
  std::optional<RunAt> carried = {};
};

/// One section to be turned into steps.
struct SectionSchedule {
  ComputeTimeline timeline;
  std::vector<OffloadCopy> copies;
  std::vector<StateWindow> windows = {};  ///< of its runs, in their order
  std::vector<int> steps = {};            ///< set by assemble(): the step of each run
};

/// Makes steps and places, without offsets (but those in gradient memory) and without edges (but
/// the caps').
///
/// A copy to the host follows the run that writes the bytes; a copy back comes just before the run
/// that OffloadCopy::back names; a mark keeps the first residence's bytes until the copy is
/// predicted to be done, so that nobody who takes them has to wait. A window is loaded where it
/// says and written back behind its op, or at the end, behind the mark of the join, if it is
/// carried.
execution::Plan assemble(const execution::Program& program,
                         const execution::PersistentLayout& layout,
                         const GradientMemoryReuse& reuse,
                         const std::vector<execution::Decision>& decisions,
                         const execution::CopyCaps& caps, std::vector<SectionSchedule>& sections);

}  // namespace stowage::offload
