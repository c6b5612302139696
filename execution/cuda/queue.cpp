#include "execution/cuda/queue.hpp"

#include <fmt/core.h>

#include "execution/cuda/copy_rows.hpp"
#include "execution/cuda/event.hpp"
#include "execution/cuda/graph.hpp"
#include "execution/cuda_check.hpp"
#include "execution/error.hpp"

namespace stowage::execution::cuda {
namespace {

bool is_captured(cudaStream_t stream) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  STOWAGE_CUDA(cudaStreamIsCapturing(stream, &status));
  return status != cudaStreamCaptureStatusNone;
}

}  // namespace

CudaQueue::CudaQueue(std::shared_ptr<Waits> waits, Lane lane, std::string name)
    : waits_(std::move(waits)), name_(std::move(name)) {
  int least = 0, greatest = 0;
  STOWAGE_CUDA(cudaDeviceGetStreamPriorityRange(&least, &greatest));
  // A collective holds up other ranks: its blocks go first when a multiprocessor becomes free.
  STOWAGE_CUDA(cudaStreamCreateWithPriority(&stream_, cudaStreamNonBlocking,
                                            lane == Lane::comm ? greatest : least));
}

CudaQueue::~CudaQueue() {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  (void)cudaStreamIsCapturing(stream_, &status);
  if (status != cudaStreamCaptureStatusNone) {
    cudaGraph_t graph = nullptr;
    if (cudaStreamEndCapture(stream_, &graph) == cudaSuccess) (void)cudaGraphDestroy(graph);
  } else {
    (void)cudaStreamSynchronize(stream_);
  }
  (void)cudaGetLastError();
  (void)cudaStreamDestroy(stream_);
}

void CudaQueue::enqueue(Function<void()>) {
  throw Error(Exit::runtime,
              fmt::format("a host closure was enqueued on the cuda queue '{}'", name_));
}

void CudaQueue::copy(void* to, const void* from, std::size_t bytes) {
  if (bytes == 0) return;
  STOWAGE_CUDA(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream_));
}

void CudaQueue::copy_rows(void* to, const void* from, const CountedRows& rows) {
  STOWAGE_CUDA(launch_copy_rows(to, from, rows, stream_));
}

void CudaQueue::record(Event& event, EventUse use) {
  check_use(use);
  STOWAGE_CUDA(cudaEventRecordWithFlags(
      cuda_event(event), stream_,
      use == EventUse::external ? cudaEventRecordExternal : cudaEventRecordDefault));
}

void CudaQueue::wait(Event& event, EventUse use) {
  check_use(use);
  STOWAGE_CUDA(cudaStreamWaitEvent(
      stream_, cuda_event(event),
      use == EventUse::external ? cudaEventWaitExternal : cudaEventWaitDefault));
}

void CudaQueue::synchronize() {
  ++*waits_;
  STOWAGE_CUDA(cudaStreamSynchronize(stream_));
}

void CudaQueue::begin_capture() {
  if (is_captured(stream_))
    throw Error(Exit::runtime, fmt::format("queue '{}' is being captured already", name_));
  STOWAGE_CUDA(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal));
}

std::unique_ptr<Graph> CudaQueue::end_capture() {
  if (!is_captured(stream_))
    throw Error(Exit::runtime, fmt::format("no capture on queue '{}'", name_));
  cudaGraph_t graph = nullptr;
  const cudaError_t code = cudaStreamEndCapture(stream_, &graph);
  if (code != cudaSuccess) {
    (void)cudaGetLastError();
    throw Error(Exit::runtime, fmt::format("the capture on queue '{}' failed: {} ({})", name_,
                                           cudaGetErrorString(code), cudaGetErrorName(code)));
  }
  return std::make_unique<CudaGraph>(graph, stream_);
}

void CudaQueue::check_use(EventUse use) const {
  if (use == EventUse::external && !is_captured(stream_))
    throw Error(Exit::runtime,
                fmt::format("EventUse::external on queue '{}', which is not captured", name_));
}

CudaQueue& cuda_queue(Queue& queue) {
  auto* ours = dynamic_cast<CudaQueue*>(&queue);
  if (ours == nullptr)
    throw Error(Exit::runtime, "a queue of another backend given to the cuda backend");
  return *ours;
}

}  // namespace stowage::execution::cuda
