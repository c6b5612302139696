#include "execution/cuda/event.hpp"

#include "execution/cuda_check.hpp"
#include "execution/error.hpp"

namespace stowage::execution::cuda {

CudaEvent::CudaEvent() { STOWAGE_CUDA(cudaEventCreateWithFlags(&event_, cudaEventDisableTiming)); }

CudaEvent::~CudaEvent() { (void)cudaEventDestroy(event_); }

void CudaEvent::synchronize() { STOWAGE_CUDA(cudaEventSynchronize(event_)); }

bool CudaEvent::done() {
  const cudaError_t code = cudaEventQuery(event_);
  if (code == cudaErrorNotReady) {
    (void)cudaGetLastError();
    return false;
  }
  STOWAGE_CUDA(code);
  return true;
}

cudaEvent_t cuda_event(Event& event) {
  auto* ours = dynamic_cast<CudaEvent*>(&event);
  if (ours == nullptr) throw Error(Exit::runtime, "an event of another backend on a cuda queue");
  return ours->handle();
}

}  // namespace stowage::execution::cuda
