#include <fmt/core.h>

#include <algorithm>
#include <map>

#include "drivers/ceilings/ceilings.hpp"
#include "results/statistics.hpp"
#include "run/measure/gemm.hpp"

namespace stowage::drivers {
namespace {

constexpr int kCandidates = 8;

struct Product {
  const char* name;
  run::GemmShape shape;
};

// 16384 tokens of the standard decks: D 2048, F 8192, Mamba and attention projections.
constexpr Product kProducts[] = {
    {"cube_8192", {8192, 8192, 8192}},       {"mlp_fc1", {16384, 8192, 2048}},
    {"mlp_fc2", {16384, 2048, 8192}},        {"mamba_in_proj", {16384, 10304, 2048}},
    {"mamba_out_proj", {16384, 2048, 4096}}, {"attention_qkv", {16384, 3072, 2048}},
    {"attention_out", {16384, 2048, 2048}},  {"head_chunk", {2048, 65536, 2048}},
};

std::size_t bf16_bytes(std::int64_t elements) { return static_cast<std::size_t>(elements) * 2; }

/// The contender with the smallest median.
std::size_t fastest(const std::vector<std::vector<double>>& times) {
  std::size_t best = 0;
  for (std::size_t i = 1; i < times.size(); ++i)
    if (results::summarize(times[i]).median < results::summarize(times[best]).median) best = i;
  return best;
}

}  // namespace

void measure_products(Ceilings& run) {
  std::map<double, double> rates;  // by flops of a product; the largest where two are equal
  for (const Product& product : kProducts) {
    const run::GemmShape& s = product.shape;
    const auto x = run.gpu.device_memory(bf16_bytes(s.m * s.k));
    const auto w = run.gpu.device_memory(bf16_bytes(s.n * s.k));
    const auto y = run.gpu.device_memory(bf16_bytes(s.m * s.n));
    const auto workspace = run.gpu.device_memory(run::Gemm::kWorkspaceLimit);
    fill_random(run.gpu, *x, run.options.seed, 1, 1.0);
    fill_random(run.gpu, *w, run.options.seed, 2, 1.0);
    const run::Gemm gemm(s, kCandidates);
    // Every candidate gets all samples, in turn with the others: a short search has picked slow
    // ones, since the power limit moves the clock meanwhile.
    std::vector<run::Work> contenders;
    for (int candidate = 0; candidate < gemm.candidates(); ++candidate)
      contenders.push_back([&, candidate](execution::Queue& queue) {
        gemm.enqueue(queue, x->data(), w->data(), y->data(), workspace->data(), candidate);
      });
    auto times = run.timer.alternate(contenders, static_cast<int>(run.options.samples));
    const std::size_t algorithm = fastest(times);
    const results::Summary summary = results::summarize(times[algorithm]);
    double& rate = rates[s.flops()];
    rate = std::max(rate, s.flops() / summary.median);
    run.record.add(results::rate_metric(
        fmt::format("ceilings/gemm_bf16/{}/flops_per_s", product.name), s.flops(), summary));
    run.record.add(
        results::Samples{.path = fmt::format("ceilings/gemm_bf16/{}", product.name),
                         .time_s = std::move(times[algorithm]),
                         .attributes = {{"m", s.m},
                                        {"n", s.n},
                                        {"k", s.k},
                                        {"flops", s.flops()},
                                        {"algorithm", static_cast<std::int64_t>(algorithm)},
                                        {"candidates", std::int64_t{gemm.candidates()}},
                                        {"clock_hz", run.timer.state().clock_hz},
                                        {"power_w", run.timer.state().power_w}}});
  }
  results::Ceiling ceiling{.name = "gemm_bf16", .unit = "FLOP/s", .size = {}, .value = {}};
  for (const auto& [flops, rate] : rates) {
    ceiling.size.push_back(flops);
    ceiling.value.push_back(rate);
  }
  run.record.add(std::move(ceiling));
}

}  // namespace stowage::drivers
