#include <fmt/core.h>

#include <array>
#include <cmath>

#include "drivers/ceilings/ceilings.hpp"
#include "kernels/attention/attention_cuda.hpp"
#include "kernels/machine.hpp"
#include "results/statistics.hpp"
#include "run/measure/gemm.hpp"
#include "run/measure/random.hpp"

namespace stowage::drivers {
namespace {

using execution::Lane;
using execution::Queue;

constexpr std::size_t kCopyBytes = std::size_t{256} << 20;
constexpr int kCopies = 6;  // in each direction: 29 ms at 55 GB/s, longer than any victim
constexpr int kProducts = 10;
constexpr std::int64_t kCube = 8192;
constexpr int kDeviceCopies = 60;  // of the same bytes: some 8 ms
constexpr int kMostSamples = 30;
constexpr int kAttentions = 10;
// Attention of the standard decks: 2 sequences of 8192 tokens, 16 heads of 128 that share 4.
constexpr std::int64_t kLength = 8192, kTokens = 2 * kLength;
constexpr int kHeads = 16, kKvHeads = 4, kHeadDim = 128;

struct Condition {
  const char* name;
  bool d2h, h2d;
};
constexpr std::array<Condition, 4> kConditions = {
    {{"alone", false, false}, {"d2h", true, false}, {"h2d", false, true}, {"both", true, true}}};

/// Copies in both directions that can be started beside other work.
class Neighbours {
 public:
  explicit Neighbours(run::Gpu& gpu)
      : d2h_(gpu.backend().make_queue(Lane::d2h, "d2h")),
        h2d_(gpu.backend().make_queue(Lane::h2d, "h2d")),
        begun_(gpu.backend().make_event()),
        device_(gpu.device_memory(2 * kCopyBytes)),
        host_(gpu.host_memory(2 * kCopyBytes)) {
    fill_random(gpu, *device_, 1, 5, 1.0);
    d2h_->copy(host_->data() + kCopyBytes, device_->data() + kCopyBytes, kCopyBytes);
    d2h_->synchronize();
  }

  /// Starts copies once `queue` has come this far.
  void start(Queue& queue, const Condition& condition) {
    queue.record(*begun_);
    if (condition.d2h) {
      d2h_->wait(*begun_);
      for (int i = 0; i < kCopies; ++i) d2h_->copy(host_->data(), device_->data(), kCopyBytes);
    }
    if (condition.h2d) {
      h2d_->wait(*begun_);
      for (int i = 0; i < kCopies; ++i)
        h2d_->copy(device_->data() + kCopyBytes, host_->data() + kCopyBytes, kCopyBytes);
    }
  }

  void finish() {
    d2h_->synchronize();
    h2d_->synchronize();
  }

 private:
  std::unique_ptr<Queue> d2h_, h2d_;
  std::unique_ptr<execution::Event> begun_;
  std::unique_ptr<execution::Arena> device_, host_;
};

/// Times `victim` under each condition in turn, with the GPU's state read while it runs.
void measure(Ceilings& run, Neighbours& neighbours, const std::string& name,
             const run::Work& victim) {
  const int samples = std::min(static_cast<int>(run.options.samples), kMostSamples);
  std::array<std::vector<double>, kConditions.size()> times;
  std::vector<results::SeriesColumn> columns;
  for (const Condition& condition : kConditions) {
    columns.push_back({fmt::format("clock_{}", condition.name), "Hz", "multiprocessor clock"});
    columns.push_back({fmt::format("power_{}", condition.name), "W", "power of the board"});
  }
  results::Series* series = run.record.series("interference_" + name, "sample", columns);
  for (int sample = -2; sample < samples; ++sample) {  // two rounds of warm-up
    std::vector<double> states;
    for (std::size_t c = 0; c < kConditions.size(); ++c) {
      neighbours.start(run.gpu.queue(), kConditions[c]);
      const double time = run.timer.once(victim);
      neighbours.finish();
      const run::GpuState& state = run.timer.state();
      states.insert(states.end(), {state.clock_hz, state.power_w});
      if (sample >= 0) times[c].push_back(time);
    }
    if (sample >= 0 && series != nullptr) series->append(sample, states);
  }
  const double alone = results::summarize(times[0]).median;
  for (std::size_t c = 0; c < kConditions.size(); ++c) {
    const results::Summary summary = results::summarize(times[c]);
    results::Metric slowdown = results::metric(
        fmt::format("ceilings/interference/{}/{}/slowdown", name, kConditions[c].name),
        summary.median / alone);
    slowdown.median_of = summary.count;
    slowdown.ci95 = {summary.ci95.low / alone, summary.ci95.high / alone};
    run.record.add(std::move(slowdown));
    run.record.add(results::Samples{
        .path = fmt::format("ceilings/interference/{}/{}", name, kConditions[c].name),
        .time_s = std::move(times[c])});
  }
}

void measure_cubes(Ceilings& run, Neighbours& neighbours) {
  const std::size_t bytes = static_cast<std::size_t>(kCube * kCube) * 2;
  const auto x = run.gpu.device_memory(bytes);
  const auto w = run.gpu.device_memory(bytes);
  const auto y = run.gpu.device_memory(bytes);
  const auto workspace = run.gpu.device_memory(run::Gemm::kWorkspaceLimit);
  fill_random(run.gpu, *x, run.options.seed, 1, 1.0);
  fill_random(run.gpu, *w, run.options.seed, 2, 1.0);
  const run::Gemm gemm({kCube, kCube, kCube});
  measure(run, neighbours, "products", [&](Queue& queue) {
    for (int i = 0; i < kProducts; ++i)
      gemm.enqueue(queue, x->data(), w->data(), y->data(), workspace->data());
  });
}

void measure_attention(Ceilings& run, Neighbours& neighbours) {
  if (const std::string missing = kernels::machine().no_wgmma(); !missing.empty()) {
    fmt::print("# attention: skipped, {}\n", missing);
    return;
  }
  constexpr int kWidth = (kHeads + 2 * kKvHeads) * kHeadDim;
  kernels::AttentionLayout layout{.tokens = kTokens,
                                  .heads = kHeads,
                                  .kv_heads = kKvHeads,
                                  .head_dim = kHeadDim,
                                  .scale = 1 / std::sqrt(static_cast<float>(kHeadDim)),
                                  .documents = 2,
                                  .uniform_length = kLength};
  layout.q = layout.k = layout.v = {kWidth, kHeadDim};
  layout.o = {kHeads * kHeadDim, kHeadDim};
  const auto bf16 = [&](std::int64_t width) {
    return run.gpu.device_memory(static_cast<std::size_t>(kTokens * width) * 2);
  };
  const auto qkv = bf16(kWidth);
  const auto o = bf16(kHeads * kHeadDim);
  const auto lse = run.gpu.device_memory(kTokens * kHeads * sizeof(float));
  const auto workspace =
      run.gpu.device_memory(kernels::attention_forward_cuda_workspace_bytes(layout));
  fill_random(run.gpu, *qkv, run.options.seed, 7, 1.0);
  const auto column = [&](int first) { return qkv->data() + std::size_t{2} * first * kHeadDim; };
  const kernels::AttentionForwardPointers pointers{.q = column(0),
                                                   .k = column(kHeads),
                                                   .v = column(kHeads + kKvHeads),
                                                   .o = o->data(),
                                                   .lse = reinterpret_cast<float*>(lse->data()),
                                                   .workspace = workspace->data()};
  measure(run, neighbours, "attention", [&](Queue& queue) {
    for (int i = 0; i < kAttentions; ++i)
      kernels::attention_forward_cuda(layout, pointers, static_cast<cudaStream_t>(queue.stream()));
  });
}

void measure_copy_kernel(Ceilings& run, Neighbours& neighbours) {
  const auto from = run.gpu.device_memory(kCopyBytes);
  const auto to = run.gpu.device_memory(kCopyBytes);
  fill_random(run.gpu, *from, run.options.seed, 6, 1.0);
  measure(run, neighbours, "copy_kernel", [&](Queue& queue) {
    for (int i = 0; i < kDeviceCopies; ++i)
      execution::parallel_for(queue, static_cast<std::int64_t>(kCopyBytes / sizeof(run::Block16)),
                              run::CopyBlocks{reinterpret_cast<const run::Block16*>(from->data()),
                                              reinterpret_cast<run::Block16*>(to->data())});
  });
}

}  // namespace

void measure_interference(Ceilings& run) {
  Neighbours neighbours(run.gpu);
  measure_cubes(run, neighbours);
  measure_attention(run, neighbours);
  measure_copy_kernel(run, neighbours);
}

}  // namespace stowage::drivers
