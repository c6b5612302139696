#include <fmt/core.h>

#include <cstring>
#include <random>

#include "drivers/ceilings/ceilings.hpp"
#include "results/statistics.hpp"
#include "run/measure/random.hpp"

namespace stowage::drivers {
namespace {

using execution::Lane;
using execution::Queue;

constexpr std::size_t kMiB = std::size_t{1} << 20;
constexpr std::size_t kLinkSizes[] = {1 * kMiB,  4 * kMiB,   16 * kMiB,
                                      64 * kMiB, 256 * kMiB, 1024 * kMiB};
constexpr std::size_t kDeviceSizes[] = {64 * kMiB, 256 * kMiB, 1024 * kMiB, 4096 * kMiB};
constexpr std::size_t kLargestLink = 1024 * kMiB;
constexpr std::size_t kLargestDevice = 4096 * kMiB;
constexpr int kFewSamples = 20;  // a gigabyte over the link takes 20 ms

/// One kind of copy: how many bytes move per byte of its size, and the work for a size.
struct Kind {
  const char* name;
  double bytes_per_size;
  std::function<run::Work(std::size_t size)> work;
};

void measure(Ceilings& run, const Kind& kind, std::span<const std::size_t> sizes, int samples) {
  results::Ceiling ceiling{.name = kind.name, .unit = "B/s", .size = {}, .value = {}};
  for (const std::size_t size : sizes) {
    const run::Work one[] = {kind.work(size)};
    auto times = run.timer.alternate(one, samples, 0.02);
    const results::Summary summary = results::summarize(times[0]);
    const double bytes = kind.bytes_per_size * static_cast<double>(size);
    ceiling.size.push_back(static_cast<double>(size));
    ceiling.value.push_back(bytes / summary.median);
    if (size == sizes.back())
      run.record.add(
          results::rate_metric(fmt::format("ceilings/{}/bandwidth", kind.name), bytes, summary));
    run.record.add(
        results::Samples{.path = fmt::format("ceilings/{}/{}_mib", kind.name, size / kMiB),
                         .time_s = std::move(times[0]),
                         .attributes = {{"bytes", bytes}}});
  }
  run.record.add(std::move(ceiling));
}

void measure_device_copies(Ceilings& run) {
  const auto from = run.gpu.device_memory(kLargestDevice);
  const auto to = run.gpu.device_memory(kLargestDevice);
  fill_random(run.gpu, *from, run.options.seed, 3, 1.0);
  const int samples = static_cast<int>(run.options.samples);
  measure(run,
          {"device_copy", 2,
           [&](std::size_t size) -> run::Work {
             return [&, size](Queue& queue) { queue.copy(to->data(), from->data(), size); };
           }},
          kDeviceSizes, samples);
  measure(run,
          {"copy_kernel", 2,
           [&](std::size_t size) -> run::Work {
             return [&, size](Queue& queue) {
               execution::parallel_for(
                   queue, static_cast<std::int64_t>(size / sizeof(run::Block16)),
                   run::CopyBlocks{reinterpret_cast<const run::Block16*>(from->data()),
                                   reinterpret_cast<run::Block16*>(to->data())});
             };
           }},
          kDeviceSizes, samples);
}

/// Bytes that differ after a way up and a way down of random content.
double round_trip_errors(Ceilings& run, execution::Arena& device, execution::Arena& up,
                         execution::Arena& down) {
  constexpr std::size_t kBytes = 64 * kMiB;
  std::mt19937_64 generator(static_cast<std::uint64_t>(run.options.seed));
  for (std::size_t at = 0; at < up.bytes(); at += 8) {
    const std::uint64_t word = generator();
    std::memcpy(up.data() + at, &word, 8);
  }
  std::memset(down.data(), 0xee, kBytes);
  Queue& queue = run.gpu.queue();
  queue.copy(device.data(), up.data(), kBytes);
  queue.copy(down.data(), device.data(), kBytes);
  queue.synchronize();
  double errors = 0;
  for (std::size_t at = 0; at < kBytes; ++at) errors += up.data()[at] != down.data()[at];
  return errors;
}

void measure_link_copies(Ceilings& run) {
  execution::Backend& backend = run.gpu.backend();
  const auto device_up = run.gpu.device_memory(kLargestLink);
  const auto device_down = run.gpu.device_memory(kLargestLink);
  const auto up = run.gpu.host_memory(kLargestLink);
  const auto down = run.gpu.host_memory(kLargestLink);
  fill_random(run.gpu, *device_down, run.options.seed, 4, 1.0);
  run.verdict.add(results::equal("link_round_trip", round_trip_errors(run, *device_up, *up, *down),
                                 0, "bytes that differ after H2D and D2H of 64 MiB"));
  const auto second = backend.make_queue(Lane::d2h, "d2h");
  const auto begun = backend.make_event();
  const auto ended = backend.make_event();
  const auto h2d = [&](std::size_t size) -> run::Work {
    return [&, size](Queue& queue) { queue.copy(device_up->data(), up->data(), size); };
  };
  const auto d2h = [&](std::size_t size) -> run::Work {
    return [&, size](Queue& queue) { queue.copy(down->data(), device_down->data(), size); };
  };
  const auto both = [&](std::size_t size) -> run::Work {
    return [&, size](Queue& queue) {
      queue.record(*begun);
      second->wait(*begun);
      h2d(size)(queue);
      d2h(size)(*second);
      second->record(*ended);
      queue.wait(*ended);
    };
  };
  const int samples = std::min(static_cast<int>(run.options.samples), kFewSamples);
  measure(run, {"h2d", 1, h2d}, kLinkSizes, samples);
  measure(run, {"d2h", 1, d2h}, kLinkSizes, samples);
  measure(run, {"duplex", 2, both}, kLinkSizes, samples);
}

}  // namespace

void fill_random(run::Gpu& gpu, execution::Arena& memory, std::int64_t seed, std::uint64_t stream,
                 double deviation) {
  execution::parallel_for(
      gpu.queue(), static_cast<std::int64_t>(memory.bytes() / 2),
      run::RandomNormal<execution::Bf16>{static_cast<std::uint64_t>(seed), stream, 0.0F,
                                         execution::normal_scale(deviation),
                                         reinterpret_cast<execution::Bf16*>(memory.data())});
  gpu.queue().synchronize();
}

void measure_copies(Ceilings& run) {
  measure_device_copies(run);
  measure_link_copies(run);
}

}  // namespace stowage::drivers
