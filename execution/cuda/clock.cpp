#include "execution/cuda/clock.hpp"

#include <utility>

#include "execution/cuda_check.hpp"
#include "execution/timing.hpp"

namespace stowage::execution::cuda {
namespace {

double distance_s(cudaEvent_t from, cudaEvent_t to) {
  float milliseconds = 0;
  STOWAGE_CUDA(cudaEventElapsedTime(&milliseconds, from, to));
  return static_cast<double>(milliseconds) * 1e-3;
}

}  // namespace

DeviceClock::DeviceClock() {
  STOWAGE_CUDA(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
  STOWAGE_CUDA(cudaEventCreate(&anchor_));
  STOWAGE_CUDA(cudaEventCreate(&next_));
  for (int warm_up = 0; warm_up < 2; ++warm_up) {
    STOWAGE_CUDA(cudaEventRecord(anchor_, stream_));
    STOWAGE_CUDA(cudaEventSynchronize(anchor_));
  }
  anchor_s_ = steady_seconds();
}

DeviceClock::~DeviceClock() {
  (void)cudaEventDestroy(next_);
  (void)cudaEventDestroy(anchor_);
  (void)cudaStreamDestroy(stream_);
}

double DeviceClock::seconds(cudaEvent_t happened) {
  const std::lock_guard lock(mutex_);
  const double distance = distance_s(anchor_, happened);
  const double time = anchor_s_ + distance;
  if (distance > kMostDistanceS) {
    STOWAGE_CUDA(cudaEventRecord(next_, stream_));
    STOWAGE_CUDA(cudaEventSynchronize(next_));
    anchor_s_ = time + distance_s(happened, next_);
    std::swap(anchor_, next_);
  }
  return time;
}

}  // namespace stowage::execution::cuda
