#include "run/record/step_trace.hpp"

#include <algorithm>

#include "parallel/job/clock_offset.hpp"

namespace stowage::run {
namespace {

using parallel::Axis;

/// Those whose steps say who waits for whom; a plan's timeline has the places of one pipeline.
std::vector<int> traced_ranks(const parallel::GridShape& shape) {
  std::vector<int> pipeline = parallel::members(shape, 0, {Axis::pipeline});
  if (pipeline.size() > 1) return pipeline;
  return parallel::members(shape, 0, {Axis::tensor, Axis::context, Axis::expert});
}

}  // namespace

results::Trace step_trace(const parallel::Communicator& world, const parallel::GridShape& shape,
                          const Profile& profile) {
  const std::vector<int> traced = traced_ranks(shape);
  const bool among = std::find(traced.begin(), traced.end(), world.rank()) != traced.end();
  const parallel::Communicator group = world.split(among ? 0 : 1, world.rank());
  results::Trace trace;
  if (!among) return trace;
  const double offset_s = parallel::clock_offset_s(group);
  const std::string own = profile.trace(group.rank(), offset_s).text();
  for (const std::string& text : group.gather(own)) trace.add(text);
  trace.start_at_zero();
  return trace;
}

}  // namespace stowage::run
