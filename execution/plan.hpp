#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "execution/program.hpp"

namespace stowage::execution {

/// What happens to a saved tensor between forward and backward.
enum class Decision : unsigned char { keep, offload, recompute };

/// The three address ranges of a plan: tensors that outlive a step, those that do not, and the
/// pinned host memory that offloaded ones go to.
enum class Region : unsigned char { persistent, transient, host };
inline constexpr int kRegions = 3;

/// "persistent", "transient" or "host".
std::string_view name(Region region);

/// Every address that a plan hands out is a multiple of this.
inline constexpr std::size_t kAlignment = 1024;

constexpr std::size_t align_up(std::size_t bytes, std::size_t alignment = kAlignment) {
  return (bytes + alignment - 1) / alignment * alignment;
}

/// One stay of one buffer at one address. A tensor that comes back from the host, or is computed
/// again, has a second place.
struct Place {
  Tensor tensor;
  int buffer = 0;
  Region region = Region::transient;
  std::size_t offset = 0;
  std::size_t bytes = 0;

  std::size_t end() const { return offset + bytes; }
};

/// One thing that the executor issues.
///
/// run and rerun: the op, with one place per buffer of each use, in order. copy_out and copy_in:
/// two places, from and to. mark: no work; it carries the fork at the start and the join at the
/// end.
struct Step {
  enum class What : unsigned char { run, rerun, copy_out, copy_in, mark };

  What what = What::run;
  int op = -1;
  std::vector<int> places;  ///< indices into Plan::places
  int queue = 0;
  std::vector<int> waits;  ///< events, before the work
  int records = -1;        ///< event, after the work
};

/// Steps [begin, end) that one graph launch covers.
struct Segment {
  int begin = 0;
  int end = 0;
  int queue = 0;
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

/// Everything that is decided about a program before it runs. Queue 0 is the main compute queue: a
/// plan starts by forking from it and ends by joining it.
struct Plan {
  std::vector<Decision> decisions;  ///< by tensor id
  std::vector<Place> places;
  std::vector<Step> steps;  ///< in issue order
  std::vector<StepRange> sections;
  std::vector<Segment> segments;
  std::vector<QueueInfo> queues;
  int events = 0;
  std::size_t bytes[kRegions] = {0, 0, 0};  ///< used of each region, aligned
  std::size_t live_bytes = 0;               ///< largest sum of live transient buffers, aligned each
  double time_s = 0;                        ///< predicted time of one step
  double exposed_s = 0;                     ///< predicted time that copies are waited for

  std::size_t device_bytes() const { return bytes[0] + bytes[1]; }
};

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
