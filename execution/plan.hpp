#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "execution/program.hpp"

namespace stowage::execution {

/// What happens to a saved tensor between forward and backward.
enum class Decision : unsigned char { keep, offload, recompute };

/// The three address ranges of a plan: what outlives a step (saved tensors and scratch may lie in
/// its gradients before these are written), what does not, and the pinned host memory: first what
/// outlives a step and has its home there, behind it offloaded tensors.
enum class Region : unsigned char { persistent, transient, host };
inline constexpr int kRegions = 3;

/// "persistent", "transient" or "host".
std::string_view name(Region region);

/// Every address that a plan hands out is a multiple of this.
inline constexpr std::size_t kAlignment = 1024;

constexpr std::size_t align_up(std::size_t bytes, std::size_t alignment = kAlignment) {
  return (bytes + alignment - 1) / alignment * alignment;
}

/// One residence of one buffer at one address. A tensor that comes back from the host, or is
/// computed again, has a second place. One that outlives a step and has its home on the host is
/// used through windows: transient places of a range of it.
struct Place {
  Tensor tensor;
  int buffer = 0;
  Region region = Region::transient;
  std::size_t offset = 0;
  std::size_t bytes = 0;
  std::size_t first = 0;  ///< byte of the buffer that the place begins with

  std::size_t end() const { return offset + bytes; }
};

/// One thing that the executor issues.
///
/// run and rerun: the op, with one place per buffer of each use, in order. copy_out and copy_in:
/// two places, from and to, and that of the count where rows are counted. mark: no work;
/// it carries the fork at the start, the join at the end, and joins with copies; places that it
/// names keep their bytes until here.
struct Step {
  enum class What : unsigned char { run, rerun, copy_out, copy_in, mark };

  What what = What::run;
  int op = -1;
  std::vector<int> places;  ///< indices into Plan::places
  int queue = 0;
  std::vector<int> waits;  ///< events, before the work
  int records = -1;        ///< event, after the work
};

/// Steps [begin, end) that one graph launch covers, on `queue`. Its compute is captured on queue 0
/// like all of the plan's: a graph may be launched on any queue. A step of another lane follows an
/// event recorded in the segment, and what it does is joined again inside. A wait for an event that
/// the segment has not recorded before becomes an external wait node, and an event that others wait
/// for an external record node, so a copy may be waited for long before the graph ends.
struct Segment {
  int begin = 0;
  int end = 0;
  int queue = 0;     ///< that launches it
  std::string name;  ///< "layer3 mamba backward"
};

/// A run of steps, executed `repeat` times; mirrors the program's sections.
struct StepRange {
  int begin = 0;
  int end = 0;
  int repeat = 1;
};

struct QueueInfo {
  std::string name;
  Lane lane = Lane::compute;
};

/// What may be under way between device and host at once; -1: no cap. A copy is under way from its
/// issue until the main queue has waited for it, directly or not.
struct CopyCaps {
  /// Copies to the host of one module name, when an op starts; states have none.
  int max_inflight = -1;
  std::int64_t d2h_bytes = -1;  ///< bytes to the host, when an op starts
  std::int64_t h2d_bytes = -1;  ///< bytes from the host, when a copy starts; one alone always may
};

/// Everything that is decided about a program before it runs. Queue 0 is the main compute queue: a
/// plan starts by forking from it and ends by joining it. Only copies that are carried into the
/// next execution stand behind the join (first_carried).
struct Plan {
  std::vector<Decision> decisions;  ///< by tensor id
  std::vector<Place> places;
  std::vector<Step> steps;  ///< in issue order
  std::vector<StepRange> sections;
  std::vector<Segment> segments;
  std::vector<QueueInfo> queues;
  CopyCaps caps;
  int events = 0;
  std::size_t bytes[kRegions] = {0, 0, 0};  ///< used of each region, aligned
  std::size_t live_bytes = 0;               ///< largest sum of live transient buffers, aligned each
  double time_s = 0;                        ///< predicted time of one step
  double exposed_s = 0;                     ///< predicted time that copies are waited for

  std::size_t device_bytes() const { return bytes[0] + bytes[1]; }
};

/// True of a copy between device and host.
inline bool is_copy(const Step& step) {
  return step.what == Step::What::copy_out || step.what == Step::What::copy_in;
}

/// True of a copy that moves as many rows as its third place says.
inline bool counts_rows(const Step& step) { return is_copy(step) && step.places.size() == 3; }

/// The step that records each event, -1 if none does.
std::vector<int> recorders(const Plan& plan);

/// "h2d stage/tokens", "run layer3/mamba/ssd", …: how messages name a step.
std::string describe(const Program& program, const Step& step);

/// Calls `visit(step index, section index, repetition)` in host order for one execution. Sections
/// that repeat more than `most` times are cut to that many: two show every dependency.
template <class Visit>
void for_each_issued(const Plan& plan, int most, Visit&& visit) {
  for (std::size_t s = 0; s < plan.sections.size(); ++s) {
    const StepRange& range = plan.sections[s];
    for (int repetition = 0; repetition < range.repeat && repetition < most; ++repetition)
      for (int step = range.begin; step < range.end; ++step)
        visit(step, static_cast<int>(s), repetition);
  }
}

}  // namespace stowage::execution
