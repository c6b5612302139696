#include "drivers/bench_comm/timing.hpp"

#include <memory>

namespace stowage::drivers {
namespace {

/// Work beside: of the first sample, and of how much longer than the sample before took.
constexpr double kFirstOverlapS = 0.02, kLonger = 1.5, kMoreS = 0.002;

}  // namespace

std::vector<std::vector<double>> time_calls(
    const parallel::Communicator& world, execution::Backend& backend, execution::Queue& queue,
    std::span<const std::function<void(execution::Queue&)>> contenders,
    const TimingOptions& options) {
  const std::size_t count = contenders.size();
  const auto train = [&](std::size_t c) {
    for (int i = 0; i < options.calls; ++i) contenders[c](queue);
  };
  std::vector<std::unique_ptr<execution::Graph>> graphs(count);
  for (std::size_t c = 0; c < count && options.graph; ++c) {
    backend.begin_capture(queue);
    train(c);
    graphs[c] = backend.end_capture(queue);
  }
  const auto begin = backend.make_timed_event();
  const auto end = backend.make_timed_event();
  std::vector<double> overlapping_s(count, kFirstOverlapS);
  const auto sample_once = [&](std::size_t c) {
    world.barrier();
    if (options.overlapping) options.overlapping->start(overlapping_s[c]);
    contenders[c](queue);
    queue.record(*begin);
    if (graphs[c])
      graphs[c]->launch(queue);
    else
      train(c);
    queue.record(*end);
    queue.synchronize();
  };
  /// Whether nothing worked beside a part of the sample on one of the ranks.
  const auto was_alone = [&](std::size_t c) {
    if (!options.overlapping) return false;
    const bool alone = options.overlapping->end_s() < end->time_s();
    const double taken_s =
        1e-9 * static_cast<double>(
                   world.max(static_cast<std::int64_t>(1e9 * (end->time_s() - begin->time_s()))));
    overlapping_s[c] = alone ? 2 * overlapping_s[c] + taken_s : kLonger * taken_s + kMoreS;
    return world.max(std::int64_t{alone}) != 0;
  };
  std::vector<std::vector<double>> times(count);
  for (std::int64_t sample = -options.warm_up; sample < options.samples; ++sample)
    for (std::size_t i = 0; i < count; ++i) {
      const std::size_t c = (static_cast<std::size_t>(sample + options.warm_up) + i) % count;
      do sample_once(c);
      while (was_alone(c));
      if (sample >= 0) times[c].push_back((end->time_s() - begin->time_s()) / options.calls);
    }
  return times;
}

}  // namespace stowage::drivers
