#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <filesystem>
#include <limits>
#include <numeric>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "execution/error.hpp"
#include "results/result_set.hpp"

namespace stowage::results::test {

/// What a result set of the tests is made of.
struct SampleRun {
  std::int64_t steps = 60;
  double step_time_s = 0.5;       ///< of each step, with 2 % of noise
  std::int64_t differs_from = 0;  ///< first step with another loss; 0: none
  unsigned seed = 1;              ///< of the noise
  std::string state = "0123456789abcdef0123456789abcdef";  ///< digest after the last step
};

inline ResultHeader sample_header() {
  const char* const argv[] = {"stowage_train", "quickstart.toml"};
  ResultHeader header;
  header.driver = "train";
  header.deck_given = "[train]\nsteps = 60\n";
  header.deck_resolved = "[train]\nsteps = 60\nlr = 0.001\n";
  header.config = {
      {"train.steps", std::int64_t{60}},        {"train.lr", 1e-3},
      {"train.seq_length", std::int64_t{1024}}, {"train.global_batch_size", std::int64_t{4}},
      {"model.pattern", std::string("M*-E")},   {"train.deterministic", true}};
  header.numerics_sha256 = std::string(64, 'a');
  header.run = begin_run(2, argv, 2, 1234);
  header.ranks = {this_rank(0, 1), this_rank(1, 1)};
  header.ranks[0].cpuset = "0";
  header.ranks[1].cpuset = "1";
  header.software = software({{"mpi", std::string("a library")}});
  return header;
}

constexpr double kTokens = 4 * 1024;  ///< of a step
constexpr double kFlops = 6e8 * kTokens;

/// Training loss of a step; 1 and more.
inline double loss_at(const SampleRun& run, std::int64_t step) {
  const double loss = 2 + 3 * std::exp(-static_cast<double>(step) / 20);
  return run.differs_from > 0 && step >= run.differs_from ? std::nextafter(loss, 10) : loss;
}

/// Adds series, samples, metrics and a ceiling as the train driver does.
inline void fill(ResultSet& set, const SampleRun& run) {
  Series& train = set.series("train", "step",
                             {{"loss", "nat", "training loss"},
                              {"grad_norm", "1", "L2 norm of the gradient"},
                              {"lr", "1", "learning rate"},
                              {"step_time", "s", "time of the step"},
                              {"ok", "1", "whether the step changed anything"},
                              {"mem_device", "B", "device memory"}});
  Series& eval = set.series("train", "val_step",
                            {{"val_loss", "nat", "validation loss"},
                             {"val_accuracy", "1", "right guesses"},
                             {"val_tokens", "1", "tokens read"},
                             {"val_targets", "1", "tokens predicted"}});
  Series& ranks = set.series("ranks", "step", {{"step_time", "s", "time of each rank", {2}}});
  std::mt19937_64 generator(run.seed);
  std::normal_distribution<double> noise(1.0, 0.02);
  std::vector<double> times, losses;
  for (std::int64_t step = 1; step <= run.steps; ++step) {
    times.push_back(run.step_time_s * noise(generator));
    const double loss = loss_at(run, step);
    train.append(step, {loss, 1, 1e-3, times.back(), 1, 1e9});
    ranks.append(step, {times.back(), times.back() / 2});
    losses.push_back(loss);
    if (step % 20 == 0)
      eval.append(step, {2.1 + static_cast<double>(run.steps - step), 0.5, 640, 600});
  }
  const double steps_s = std::accumulate(times.begin(), times.end(), 0.0);
  for (const auto& [tag, value] :
       std::initializer_list<std::pair<const char*, double>>{{"train/wall_time", 2 + steps_s},
                                                             {"train/setup_time", 1},
                                                             {"train/parameters", 1e8},
                                                             {"train/peak_device_bytes", 1e9},
                                                             {"train/pinned_bytes", 0},
                                                             {"train/persistent_bytes", 9e8},
                                                             {"train/transient_bytes", 1e8},
                                                             {"data/packing_efficiency", 1},
                                                             {"data/split_documents", 0},
                                                             {"data/dropped_tokens", 0}})
    set.add(metric(tag, value));
  if (run.steps > 0) {
    const Summary time_s = summarize(times);
    set.add(rate_metric("train/tokens_per_s", kTokens, time_s));
    set.add(metric("train/step_time", time_s));
    set.add(metric("train/skipped_steps", 0));
    set.add(rate_metric("train/model_flops_per_s", kFlops, time_s));
    set.add(rate_metric("train/model_flops_per_s_gpu", kFlops / 2, time_s));
    set.add(rate_metric("train/hw_flops_per_s", kFlops, time_s));
    set.add(rate_metric("train/megatron_compat_flops_per_s", kFlops, time_s));
    const std::size_t tail = std::max<std::size_t>(1, losses.size() / 10);
    set.add(metric("train/loss", std::accumulate(losses.end() - static_cast<std::ptrdiff_t>(tail),
                                                 losses.end(), 0.0) /
                                     static_cast<double>(tail)));
    set.add(Samples{.path = "train/step_time",
                    .time_s = times,
                    .attributes = {{"tokens", kTokens},
                                   {"model_flops", kFlops},
                                   {"hw_flops", kFlops},
                                   {"megatron_compat_flops", kFlops}}});
  }
  if (eval.size() > 0) {
    const std::vector<double>& found = eval.column("val_loss");
    set.add(metric("train/val_loss", found.back()));
    set.add(metric("train/best_val_loss", *std::ranges::min_element(found)));
    set.add(metric("train/val_perplexity", std::exp(found.back())));
    for (const std::string name : {"val_accuracy", "val_tokens", "val_targets"})
      set.add(metric("train/" + name, eval.column(name).back()));
  }
  set.add(StateAt{run.steps, run.state});
  set.add(Choice{"cublasLt", "8x8x8 NN fp32>fp32", "algo 0", "table"});
  set.add(Ceiling{"h2d", "B/s", {1e6, 1e9}, {1e10, 5e10}});
}

constexpr double kLargest = std::numeric_limits<double>::max();

inline Verdict good_verdict(const SampleRun& run = {}) {
  Verdict verdict;
  verdict.add(equal("skipped_steps", 0, 0, "steps whose gradient was not finite"));
  verdict.add(at_most("finite_loss", loss_at(run, run.steps), kLargest, "|last training loss|"));
  verdict.add(at_most("finite_val_loss", 2.1, kLargest, "|last validation loss|"));
  verdict.add(at_most("val_loss", 2.1, 2.2, "last validation loss per byte"));
  return verdict;
}

inline void write_sample(const std::filesystem::path& path, const SampleRun& run,
                         const Verdict& verdict) {
  ResultSet set(path, sample_header());
  fill(set, run);
  set.finish(verdict);
}

inline void write_sample(const std::filesystem::path& path, const SampleRun& run = {}) {
  write_sample(path, run, good_verdict(run));
}

/// The limits of the samples' machine, as stowage_ceilings writes them.
inline void write_ceilings(const std::filesystem::path& path, const std::string& gpu_uuid = "GPU-1",
                           double bytes_per_s = 4e12) {
  ResultHeader header = sample_header();
  header.driver = "ceilings";
  for (RankInfo& rank : header.ranks) rank.gpu_uuid = gpu_uuid;
  ResultSet set(path, header);
  const double work = 8e9;
  const std::vector<double> copies(50, work / bytes_per_s), products(50, work / 8e14);
  set.add(rate_metric("ceilings/device_copy/bandwidth", work, summarize(copies)));
  set.add(Samples{"ceilings/device_copy/64_mib", copies, 1, {{"bytes", work}}});
  set.add(Ceiling{"device_copy", "B/s", {67108864}, {work / summarize(copies).median}});
  set.add(rate_metric("ceilings/gemm_bf16/cube/flops_per_s", work, summarize(products)));
  set.add(Samples{"ceilings/gemm_bf16/cube", products, 1, {{"flops", work}}});
  set.add(Ceiling{"gemm_bf16", "FLOP/s", {work}, {work / summarize(products).median}});
  Verdict verdict;
  verdict.add(equal("link_round_trip", 0, 0, "bytes that differ"));
  set.finish(verdict);
}

/// What a set of one operator with a peer is made of.
struct SampleKernel {
  double bytes = 4e9;
  double time_s = 2e-3;  ///< of each sample of ours, all alike; the peer takes as long again
  std::int64_t samples = 50;
  bool checked = true;  ///< whether ours is; the peer always
  std::string gpu_uuid = "GPU-1";
};

/// A set of one operator, as stowage_bench_kernels --ceilings writes it.
inline void write_kernels(const std::filesystem::path& path, const std::filesystem::path& ceilings,
                          const SampleKernel& kernel = {}) {
  ResultHeader header = sample_header();
  header.driver = "bench_kernels";
  header.config = {{"bench.samples", kernel.samples}};
  ResultSet set(path, header);
  const CeilingsReference limits = read_ceilings(ceilings, kernel.gpu_uuid);
  set.refer(limits);
  Verdict verdict;
  for (const auto& [name, factor, library] :
       {std::tuple{"ours", 1.0, ""}, {"cublas", 2.0, "cuBLASLt 13.1, first of its heuristics"}}) {
    const std::string base = fmt::format("kernels/scale/n8/{}", name);
    const std::vector<double> times(static_cast<std::size_t>(kernel.samples),
                                    factor * kernel.time_s);
    const Summary time_s = summarize(times);
    set.add(metric(base + "/time", time_s));
    set.add(rate_metric(base + "/bytes_per_s", kernel.bytes, time_s));
    set.add(metric(base + "/pct_ceiling", kernel.bytes / limits.bytes_per_s / time_s.median));
    Samples samples{base, times, 1, {{"flops", 0.0}, {"bytes", kernel.bytes}}};
    if (*library) samples.attributes.push_back({"library", std::string(library)});
    if (kernel.checked || *library) {
      samples.attributes.insert(samples.attributes.end(),
                                {{"error", 1e-3 * factor}, {"error.y", 1e-3 * factor}});
      verdict.add(at_most(fmt::format("scale.n8.{}.y", name), 1e-3 * factor, 4e-3, "error"));
    }
    set.add(std::move(samples));
  }
  set.finish(verdict);
}

}  // namespace stowage::results::test
