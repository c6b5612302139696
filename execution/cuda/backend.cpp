#include <cuda_runtime_api.h>

#include <atomic>

#include "execution/cuda/arena.hpp"
#include "execution/cuda/event.hpp"
#include "execution/cuda/queue.hpp"
#include "execution/cuda_backend.hpp"
#include "execution/cuda_check.hpp"

namespace stowage::execution {
namespace cuda {
namespace {

class CudaBackend final : public Backend {
 public:
  explicit CudaBackend(const CudaOptions& options) : device_(options.device) {
    (void)open_cuda_device(device_);
  }

  std::string_view name() const override { return "cuda"; }

  std::unique_ptr<Arena> allocate(MemoryKind kind, std::size_t bytes) override {
    make_current();
    auto arena = std::make_unique<CudaArena>(kind, bytes);
    ++allocations_;
    return arena;
  }

  std::unique_ptr<Queue> make_queue(Lane lane, std::string queue_name) override {
    make_current();
    return std::make_unique<CudaQueue>(waits_, lane, std::move(queue_name));
  }

  std::unique_ptr<Event> make_event() override {
    make_current();
    return std::make_unique<CudaEvent>(waits_);
  }

  std::unique_ptr<TimedEvent> make_timed_event() override {
    make_current();
    if (!clock_) clock_ = std::make_shared<DeviceClock>();
    return std::make_unique<CudaTimedEvent>(waits_, clock_);
  }

  void begin_capture(Queue& queue) override { cuda_queue(queue).begin_capture(); }
  std::unique_ptr<Graph> end_capture(Queue& queue) override {
    return cuda_queue(queue).end_capture();
  }
  std::uint64_t allocations() const override { return allocations_; }
  std::uint64_t waits() const override { return *waits_; }

 private:
  void make_current() const { STOWAGE_CUDA(cudaSetDevice(device_)); }

  int device_;
  std::shared_ptr<DeviceClock> clock_;  ///< made with the first timed event
  std::atomic<std::uint64_t> allocations_ = 0;
  std::shared_ptr<Waits> waits_ = std::make_shared<Waits>(0);
};

}  // namespace
}  // namespace cuda

std::unique_ptr<Backend> make_cuda_backend(const CudaOptions& options) {
  return std::make_unique<cuda::CudaBackend>(options);
}

}  // namespace stowage::execution
