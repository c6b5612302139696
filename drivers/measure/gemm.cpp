#include "drivers/measure/gemm.hpp"

#include <algorithm>
#include <numeric>
#include <vector>

#include "drivers/measure/timer.hpp"
#include "results/statistics.hpp"

namespace stowage::drivers {

using execution::Dtype;
using kernels::Transpose;

Gemm::Gemm(GemmShape shape, int candidates)
    : plan_(kernels::dense_shape(shape.m, shape.n, shape.k, Transpose::no, Transpose::yes,
                                 Dtype::bf16, Dtype::bf16, false),
            candidates) {}

void Gemm::enqueue(execution::Queue& queue, const void* x, const void* w, void* y, void* workspace,
                   int candidate) const {
  plan_.run(candidate, x, w, y, workspace, static_cast<cudaStream_t>(queue.stream()));
}

namespace {

// Candidates in order of their median times of `samples` runs in turn.
std::vector<int> ranked(Timer& timer, const std::vector<int>& candidates, int samples,
                        const std::function<void(execution::Queue&, int)>& run) {
  std::vector<Work> contenders;
  for (const int candidate : candidates)
    contenders.push_back([=](execution::Queue& queue) { run(queue, candidate); });
  std::vector<double> medians;
  for (const auto& times : timer.alternate(contenders, samples))
    medians.push_back(results::summarize(times).median);
  std::vector<std::size_t> order(candidates.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return medians[a] < medians[b]; });
  std::vector<int> sorted;
  for (const std::size_t i : order) sorted.push_back(candidates[i]);
  return sorted;
}

}  // namespace

int fastest_candidate(Timer& timer, const kernels::ProductPlan& plan, const void* a, const void* b,
                      void* c, void* workspace) {
  constexpr int kSamples = 11, kFinalists = 4, kFinalSamples = 51;
  const auto run = [&](execution::Queue& queue, int candidate) {
    plan.run(candidate, a, b, c, workspace, static_cast<cudaStream_t>(queue.stream()));
  };
  std::vector<int> all(static_cast<std::size_t>(plan.candidates()));
  std::iota(all.begin(), all.end(), 0);
  std::vector<int> best = ranked(timer, all, kSamples, run);
  best.resize(std::min<std::size_t>(best.size(), kFinalists));
  return ranked(timer, best, kFinalSamples, run).front();
}

}  // namespace stowage::drivers
