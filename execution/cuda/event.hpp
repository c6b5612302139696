#pragma once

#include <cuda_runtime_api.h>

#include <memory>

#include "execution/cuda/clock.hpp"
#include "execution/cuda/waits.hpp"
#include "execution/timing.hpp"

namespace stowage::execution::cuda {

/// A CUDA event without timing.
class CudaEvent final : public Event {
 public:
  explicit CudaEvent(std::shared_ptr<Waits> waits);
  CudaEvent(const CudaEvent&) = delete;
  CudaEvent& operator=(const CudaEvent&) = delete;
  ~CudaEvent() override;

  void synchronize() override;
  bool done() override;

  cudaEvent_t handle() const { return event_; }

 private:
  std::shared_ptr<Waits> waits_;
  cudaEvent_t event_ = nullptr;
};

/// A CUDA event with timing.
class CudaTimedEvent final : public TimedEvent {
 public:
  CudaTimedEvent(std::shared_ptr<Waits> waits, std::shared_ptr<DeviceClock> clock);
  CudaTimedEvent(const CudaTimedEvent&) = delete;
  CudaTimedEvent& operator=(const CudaTimedEvent&) = delete;
  ~CudaTimedEvent() override;

  void synchronize() override;
  bool done() override;
  double time_s() override;

  cudaEvent_t handle() const { return event_; }

 private:
  std::shared_ptr<Waits> waits_;
  std::shared_ptr<DeviceClock> clock_;
  cudaEvent_t event_ = nullptr;
};

/// @throws Error if the event was not made by a cuda backend
cudaEvent_t cuda_event(Event& event);

}  // namespace stowage::execution::cuda
