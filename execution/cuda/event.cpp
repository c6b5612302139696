#include "execution/cuda/event.hpp"

#include <utility>

#include "execution/cuda_check.hpp"
#include "execution/error.hpp"

namespace stowage::execution::cuda {
namespace {

bool has_happened(cudaEvent_t event) {
  const cudaError_t code = cudaEventQuery(event);
  if (code == cudaErrorNotReady) {
    (void)cudaGetLastError();
    return false;
  }
  STOWAGE_CUDA(code);
  return true;
}

}  // namespace

CudaEvent::CudaEvent(std::shared_ptr<Waits> waits) : waits_(std::move(waits)) {
  STOWAGE_CUDA(cudaEventCreateWithFlags(&event_, cudaEventDisableTiming));
}

CudaEvent::~CudaEvent() { (void)cudaEventDestroy(event_); }

void CudaEvent::synchronize() {
  ++*waits_;
  STOWAGE_CUDA(cudaEventSynchronize(event_));
}

bool CudaEvent::done() { return has_happened(event_); }

CudaTimedEvent::CudaTimedEvent(std::shared_ptr<Waits> waits, std::shared_ptr<DeviceClock> clock)
    : waits_(std::move(waits)), clock_(std::move(clock)) {
  STOWAGE_CUDA(cudaEventCreate(&event_));
}

CudaTimedEvent::~CudaTimedEvent() { (void)cudaEventDestroy(event_); }

void CudaTimedEvent::synchronize() {
  ++*waits_;
  STOWAGE_CUDA(cudaEventSynchronize(event_));
}

bool CudaTimedEvent::done() { return has_happened(event_); }

double CudaTimedEvent::time_s() {
  synchronize();
  return clock_->seconds(event_);
}

cudaEvent_t cuda_event(Event& event) {
  if (auto* timed = dynamic_cast<CudaTimedEvent*>(&event)) return timed->handle();
  auto* ours = dynamic_cast<CudaEvent*>(&event);
  if (ours == nullptr) throw Error(Exit::runtime, "an event of another backend on a cuda queue");
  return ours->handle();
}

}  // namespace stowage::execution::cuda
