#pragma once

#include <cuda_runtime_api.h>

#include <memory>
#include <string>

#include "execution/backend.hpp"
#include "execution/cuda/waits.hpp"

namespace stowage::execution::cuda {

/// A queue of the cuda backend: a stream that does not wait for the default stream.
class CudaQueue final : public Queue {
 public:
  CudaQueue(std::shared_ptr<Waits> waits, Lane lane, std::string name);
  CudaQueue(const CudaQueue&) = delete;
  CudaQueue& operator=(const CudaQueue&) = delete;
  /// Drops a capture under way, else waits for the work of the queue.
  ~CudaQueue() override;

  void* stream() const override { return stream_; }
  void enqueue(Function<void()> work) override;
  void copy(void* to, const void* from, std::size_t bytes) override;
  void copy_rows(void* to, const void* from, const CountedRows& rows) override;
  void record(Event& event, EventUse use) override;
  void wait(Event& event, EventUse use) override;
  void synchronize() override;

  /// See Backend.
  void begin_capture();
  std::unique_ptr<Graph> end_capture();

  cudaStream_t handle() const { return stream_; }

 private:
  void check_use(EventUse use) const;

  std::shared_ptr<Waits> waits_;
  std::string name_;
  cudaStream_t stream_ = nullptr;
};

/// @throws Error if the queue was not made by a cuda backend
CudaQueue& cuda_queue(Queue& queue);

}  // namespace stowage::execution::cuda
