#include "drivers/bench_kernels/product_search.hpp"

#include <algorithm>
#include <map>
#include <numeric>
#include <vector>

#include "results/statistics.hpp"

namespace stowage::drivers::bench {
namespace {

constexpr double kLeastGain = 0.01;

// Rounds of the search: how many samples of each, and how many of them go on.
struct Round {
  int samples;
  std::size_t survivors;
};
constexpr Round kRounds[] = {{5, 10}, {15, 3}};
constexpr int kFinalSamples = 61;

std::map<int, results::Summary> timed(run::Timer& timer, const std::vector<int>& candidates,
                                      int samples, const RunCandidate& run) {
  std::vector<run::Work> contenders;
  for (const int candidate : candidates)
    contenders.push_back([=](execution::Queue& queue) { run(queue, candidate); });
  const auto times = timer.alternate(contenders, samples);
  std::map<int, results::Summary> summaries;
  for (std::size_t i = 0; i < candidates.size(); ++i)
    summaries[candidates[i]] = results::summarize(times[i]);
  return summaries;
}

// The keys, fastest first.
std::vector<int> ranked(const std::map<int, results::Summary>& summaries) {
  std::vector<int> order;
  for (const auto& [candidate, summary] : summaries) order.push_back(candidate);
  std::stable_sort(order.begin(), order.end(),
                   [&](int a, int b) { return summaries.at(a).median < summaries.at(b).median; });
  return order;
}

bool clearly_faster(const results::Summary& one, const results::Summary& first) {
  return one.ci95.high < first.ci95.low && one.median < (1 - kLeastGain) * first.median;
}

}  // namespace

int fastest_candidate(run::Timer& timer, int candidates, const RunCandidate& run,
                      const Accepted& accepted) {
  std::vector<int> left(static_cast<std::size_t>(candidates));
  std::iota(left.begin(), left.end(), 0);
  for (const Round& round : kRounds) {
    left = ranked(timed(timer, left, round.samples, run));
    left.resize(std::min(left.size(), round.survivors));
    if (std::find(left.begin(), left.end(), 0) == left.end()) left.push_back(0);
  }
  const auto summaries = timed(timer, left, kFinalSamples, run);
  for (const int candidate : ranked(summaries)) {
    if (candidate == 0 || !clearly_faster(summaries.at(candidate), summaries.at(0))) return 0;
    if (accepted(candidate)) return candidate;
  }
  return 0;
}

}  // namespace stowage::drivers::bench
