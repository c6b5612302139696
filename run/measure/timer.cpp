#include "run/measure/timer.hpp"

#include <chrono>

#include "execution/cuda_check.hpp"

namespace stowage::run {
namespace {

constexpr std::size_t kScratchBytes = std::size_t{192} << 20;  // an L2 has at most 126 MiB

cudaStream_t stream(Gpu& gpu) { return static_cast<cudaStream_t>(gpu.queue().stream()); }

double elapsed_s(cudaEvent_t start, cudaEvent_t stop) {
  float ms = 0;
  STOWAGE_CUDA(cudaEventElapsedTime(&ms, start, stop));
  return static_cast<double>(ms) * 1e-3;
}

}  // namespace

/// Pairs of timing events, made as they are needed.
struct Timer::Events {
  struct Pair {
    cudaEvent_t start = nullptr, stop = nullptr;
  };
  std::vector<Pair> pairs;

  void grow(std::size_t count) {
    while (pairs.size() < count) {
      Pair pair;
      STOWAGE_CUDA(cudaEventCreate(&pair.start));
      STOWAGE_CUDA(cudaEventCreate(&pair.stop));
      pairs.push_back(pair);
    }
  }
  ~Events() {
    for (const Pair& pair : pairs) {
      (void)cudaEventDestroy(pair.start);
      (void)cudaEventDestroy(pair.stop);
    }
  }
};

Timer::Timer(Gpu& gpu)
    : gpu_(gpu), scratch_(gpu.device_memory(kScratchBytes)), events_(std::make_unique<Events>()) {}

Timer::~Timer() = default;

void Timer::scrub() {
  STOWAGE_CUDA(cudaMemsetAsync(scratch_->data(), 0x55, kScratchBytes, stream(gpu_)));
}

std::vector<std::vector<double>> Timer::alternate(std::span<const Work> contenders, int samples,
                                                  double warm_up_s) {
  using Clock = std::chrono::steady_clock;
  const auto begin = Clock::now();
  for (int round = 0;
       round < 3 || std::chrono::duration<double>(Clock::now() - begin).count() < warm_up_s;
       ++round) {
    for (const Work& work : contenders) {
      scrub();
      work(gpu_.queue());
    }
    gpu_.queue().synchronize();
  }
  const std::size_t count = contenders.size();
  const auto rounds = static_cast<std::size_t>(samples);
  events_->grow(count * rounds);
  // Each round begins with the next contender: at the power limit a clock may swing with the
  // rounds.
  const auto pair_of = [&](std::size_t s, std::size_t c) {
    return events_->pairs.begin() + static_cast<std::ptrdiff_t>(s * count + c);
  };
  for (std::size_t s = 0; s < rounds; ++s) {
    for (std::size_t i = 0; i < count; ++i) {
      const std::size_t c = (s + i) % count;
      scrub();
      STOWAGE_CUDA(cudaEventRecord(pair_of(s, c)->start, stream(gpu_)));
      contenders[c](gpu_.queue());
      STOWAGE_CUDA(cudaEventRecord(pair_of(s, c)->stop, stream(gpu_)));
    }
  }
  state_ = gpu_.monitor().read();
  gpu_.queue().synchronize();
  std::vector<std::vector<double>> times(count);
  for (std::size_t s = 0; s < rounds; ++s)
    for (std::size_t c = 0; c < count; ++c)
      times[c].push_back(elapsed_s(pair_of(s, c)->start, pair_of(s, c)->stop));
  return times;
}

double Timer::once(const Work& work) {
  events_->grow(1);
  const Events::Pair pair = events_->pairs.front();
  STOWAGE_CUDA(cudaEventRecord(pair.start, stream(gpu_)));
  work(gpu_.queue());
  STOWAGE_CUDA(cudaEventRecord(pair.stop, stream(gpu_)));
  state_ = gpu_.monitor().read();
  gpu_.queue().synchronize();
  return elapsed_s(pair.start, pair.stop);
}

}  // namespace stowage::run
