#pragma once

#include <cuda_runtime_api.h>

#include "execution/queue.hpp"

namespace stowage::execution::cuda {

/// A CUDA event without timing.
class CudaEvent final : public Event {
 public:
  CudaEvent();
  CudaEvent(const CudaEvent&) = delete;
  CudaEvent& operator=(const CudaEvent&) = delete;
  ~CudaEvent() override;

  void synchronize() override;
  bool done() override;

  cudaEvent_t handle() const { return event_; }

 private:
  cudaEvent_t event_ = nullptr;
};

/// @throws Error if the event was not made by a cuda backend
cudaEvent_t cuda_event(Event& event);

}  // namespace stowage::execution::cuda
