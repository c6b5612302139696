#include "drivers/train/pipeline_trace.hpp"

#include <algorithm>

#include "parallel/clock_offset.hpp"

namespace stowage::drivers {

results::Trace pipeline_trace(const parallel::Communicator& world, const parallel::GridShape& shape,
                              const Profile& profile) {
  const std::vector<int> traced = parallel::members(shape, 0, {parallel::Axis::pipeline});
  const bool among = std::find(traced.begin(), traced.end(), world.rank()) != traced.end();
  const parallel::Communicator pipeline = world.split(among ? 0 : 1, world.rank());
  results::Trace trace;
  if (!among) return trace;
  const double offset_s = parallel::clock_offset_s(pipeline);
  const std::string own = profile.trace(pipeline.rank(), offset_s).text();
  for (const std::string& text : pipeline.gather(own)) trace.add(text);
  trace.start_at_zero();
  return trace;
}

}  // namespace stowage::drivers
