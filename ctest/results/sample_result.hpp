#pragma once

#include <cmath>
#include <filesystem>
#include <random>
#include <string>
#include <vector>

#include "results/result_set.hpp"

namespace stowage::results::test {

/// What a result set of the tests is made of.
struct SampleRun {
  std::int64_t steps = 60;
  double step_time_s = 0.5;       ///< of each step, with 2 % of noise
  std::int64_t differs_from = 0;  ///< first step with another loss; 0: none
  unsigned seed = 1;              ///< of the noise
};

inline ResultHeader sample_header() {
  const char* const argv[] = {"stowage_train", "quickstart.toml"};
  ResultHeader header;
  header.driver = "train";
  header.deck_given = "[train]\nsteps = 60\n";
  header.deck_resolved = "[train]\nsteps = 60\nlr = 0.001\n";
  header.config = {{"train.steps", std::int64_t{60}},
                   {"train.lr", 1e-3},
                   {"model.pattern", std::string("M*-E")},
                   {"train.deterministic", true}};
  header.run = begin_run(2, argv, 2, 1234);
  header.ranks = {this_rank(0, 1), this_rank(1, 1)};
  header.ranks[0].cpuset = "0";
  header.ranks[1].cpuset = "1";
  header.software = software({{"mpi", std::string("a library")}});
  return header;
}

/// Adds series, samples, metrics and a ceiling as the train driver does.
inline void fill(ResultSet& set, const SampleRun& run) {
  Series& train = set.series("train", "step",
                             {{"loss", "nat", "training loss"},
                              {"step_time", "s", "time of the step"},
                              {"mem_device", "B", "device memory"}});
  Series& eval = set.series("train", "val_step", {{"val_loss", "nat", "validation loss"}});
  Series& ranks = set.series("ranks", "step", {{"step_time", "s", "time of each rank", {2}}});
  std::mt19937_64 generator(run.seed);
  std::normal_distribution<double> noise(1.0, 0.02);
  std::vector<double> times;
  for (std::int64_t step = 1; step <= run.steps; ++step) {
    times.push_back(run.step_time_s * noise(generator));
    double loss = 2 + 3 * std::exp(-static_cast<double>(step) / 20);
    if (run.differs_from > 0 && step >= run.differs_from) loss = std::nextafter(loss, 10);
    train.append(step, {loss, times.back(), 1e9});
    ranks.append(step, {times.back(), times.back() / 2});
    if (step % 20 == 0) eval.append(step, {loss + 0.1});
  }
  const Summary time_s = summarize(times);
  set.add(rate_metric("train/tokens_per_s", 4096, time_s));
  set.add(metric("train/step_time", time_s));
  set.add(metric("train/val_loss", 2.1));
  set.add(Samples{.path = "train/step_time", .time_s = times});
  set.add(Choice{"cublasLt", "8x8x8 NN fp32>fp32", "algo 0", "table"});
  set.add(Ceiling{"h2d", "B/s", {1e6, 1e9}, {1e10, 5e10}});
}

inline Verdict good_verdict() {
  Verdict verdict;
  verdict.add(at_most("val_loss", 2.1, 2.2, "last validation loss per byte"));
  return verdict;
}

inline void write_sample(const std::filesystem::path& path, const SampleRun& run = {},
                         const Verdict& verdict = good_verdict()) {
  ResultSet set(path, sample_header());
  fill(set, run);
  set.finish(verdict);
}

}  // namespace stowage::results::test
