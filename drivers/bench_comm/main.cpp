// stowage_bench_comm: what GPUs exchange in a training step, checked and timed by size.

#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <algorithm>

#include "drivers/bench_comm/exchange.hpp"
#include "drivers/measure/record.hpp"
#include "execution/cuda_backend.hpp"
#include "results/statistics.hpp"

namespace stowage::drivers {
namespace {

constexpr std::size_t kKiB = 1024;
constexpr std::size_t kSizes[] = {4 * kKiB,          64 * kKiB,        1024 * kKiB,
                                  16 * 1024 * kKiB,  64 * 1024 * kKiB, 256 * 1024 * kKiB,
                                  1024 * 1024 * kKiB};
constexpr std::size_t kLargest = kSizes[std::size(kSizes) - 1];
constexpr double kTrainBytes = 256e6;  // of one sample; small exchanges go 100 at a time

int exchanges_of_a_sample(std::size_t bytes) {
  return std::clamp(static_cast<int>(kTrainBytes / static_cast<double>(bytes)), 2, 100);
}

/// Seconds of one exchange in each sample, on this rank.
std::vector<double> measure(const parallel::Communicator& world, Gpu& gpu, const Exchange& exchange,
                            ExchangeBuffers& buffers, std::size_t bytes, std::int64_t samples) {
  const auto begin = gpu.backend().make_timed_event();
  const auto end = gpu.backend().make_timed_event();
  const int train = exchanges_of_a_sample(bytes);
  std::vector<double> times;
  for (std::int64_t sample = -3; sample < samples; ++sample) {
    world.barrier();
    exchange.enqueue(gpu.queue(), buffers, bytes);  // it ends on all ranks at one moment, nearly
    gpu.queue().record(*begin);
    for (int i = 0; i < train; ++i) exchange.enqueue(gpu.queue(), buffers, bytes);
    gpu.queue().record(*end);
    if (sample >= 0) times.push_back((end->time_s() - begin->time_s()) / train);
    gpu.queue().synchronize();
  }
  return times;
}

void keep(Record& record, const Exchange& exchange, int ranks, std::size_t bytes,
          std::vector<double> times, results::Ceiling& ceiling) {
  const results::Summary summary = results::summarize(times);
  const double bus_bytes = exchange.bus_factor(ranks) * static_cast<double>(bytes);
  ceiling.size.push_back(static_cast<double>(bytes));
  ceiling.value.push_back(bus_bytes / summary.median);
  const std::string name = fmt::format("{}/{}_kib", exchange.name, bytes / kKiB);
  record.add(results::rate_metric(fmt::format("comm/{}/busbw", name), bus_bytes, summary));
  record.add(
      results::Samples{.path = "comm/" + name,
                       .time_s = std::move(times),
                       .attributes = {{"bytes", static_cast<std::int64_t>(bytes)},
                                      {"exchanges", std::int64_t{exchanges_of_a_sample(bytes)}}}});
}

execution::Exit bench(const parallel::Communicator& world, const MeasureOptions& options,
                      const parallel::NcclOptions& nccl) {
  if (world.size() < 2)
    execution::throw_environment("stowage_bench_comm needs two ranks or more, 1 was started");
  const parallel::Communicator host = world.split_by_host();
  Gpu gpu(host.rank() % execution::cuda_device_count());
  parallel::pin_nccl(nccl);
  std::vector<results::RankInfo> ranks;
  for (const std::string& text : world.gather(results::to_text(gpu.rank_info(world.rank()))))
    ranks.push_back(results::rank_from_text(text));
  const bool root = world.rank() == 0;
  std::unique_ptr<Record> record;
  if (root)
    record = std::make_unique<Record>("bench_comm", options, ranks,
                                      results::Fields{{"comm.samples", options.samples},
                                                      {"comm.algorithm", nccl.algorithm},
                                                      {"comm.protocol", nccl.protocol},
                                                      {"comm.channels", nccl.channels}},
                                      results::Fields{{"nccl", parallel::nccl_version()}});
  ExchangeBuffers buffers{gpu.device_memory(kLargest), gpu.device_memory(kLargest)};
  results::Verdict verdict;
  for (const Exchange& exchange : all_exchanges(world, gpu, nccl)) {
    const double errors = world.sum(exchange.errors(gpu, buffers));
    verdict.add(results::equal(exchange.name, errors, 0, "wrong elements on all ranks"));
    results::Ceiling ceiling{.name = exchange.name, .unit = "B/s", .size = {}, .value = {}};
    for (const std::size_t bytes : kSizes) {
      auto times = measure(world, gpu, exchange, buffers, bytes, options.samples);
      if (root) keep(*record, exchange, world.size(), bytes, std::move(times), ceiling);
    }
    if (root) record->add(std::move(ceiling));
  }
  if (!root) return verdict.exit();
  record->print_metrics();
  return record->finish(verdict, fmt::format("comm/all_reduce/{}_kib/busbw", 256 * kKiB));
}

}  // namespace
}  // namespace stowage::drivers

int main(int argc, char** argv) {
  using namespace stowage;
  drivers::MeasureOptions options;
  options.samples = 20;
  parallel::NcclOptions nccl;
  return drivers::measure_main_on_ranks(
      argc, argv, "stowage_bench_comm",
      "Checks and times collectives between GPUs, one rank each, on NCCL.", options,
      [&](CLI::App& app) {
        app.remove_option(app.get_option("--device"));  // each rank has one of its own
        app.add_option("--algorithm", nccl.algorithm, "NCCL_ALGO (default Ring)");
        app.add_option("--protocol", nccl.protocol, "NCCL_PROTO (default Simple)");
        app.add_option("--channels", nccl.channels, "Thread blocks; 0: NCCL's choice (default 16)");
      },
      [&](const parallel::Communicator& world) { return drivers::bench(world, options, nccl); });
}
