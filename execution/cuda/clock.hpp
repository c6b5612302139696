#pragma once

#include <cuda_runtime_api.h>

#include <mutex>

namespace stowage::execution::cuda {

/// Turns timed events into seconds of the steady clock: by their distance from an anchor event
/// whose time on the host is known. The runtime gives distances as floats in milliseconds, so the
/// anchor moves on before they lose microseconds.
class DeviceClock {
 public:
  DeviceClock();
  DeviceClock(const DeviceClock&) = delete;
  DeviceClock& operator=(const DeviceClock&) = delete;
  ~DeviceClock();

  /// When an event with timing happened, which must be over.
  double seconds(cudaEvent_t happened);

 private:
  static constexpr double kMostDistanceS = 16;  ///< a float then still holds whole microseconds

  cudaStream_t stream_ = nullptr;
  cudaEvent_t anchor_ = nullptr;
  cudaEvent_t next_ = nullptr;
  double anchor_s_ = 0;
  std::mutex mutex_;
};

}  // namespace stowage::execution::cuda
