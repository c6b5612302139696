#pragma once

#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "ctest/kernels/need_gpu.hpp"
#include "ctest/kernels/support.hpp"
#include "execution/cuda_backend.hpp"

/// What tests of queue forms on a GPU need: arrays in device memory, and a queue of the cuda
/// backend that runs work, again, and from a captured graph.
namespace stowage::kernels::test {

/// A copy of an Array in device memory, poisoned where the Array is.
class DeviceArray {
 public:
  explicit DeviceArray(const Array& from) : from_(from) {
    if (!from_.view()) return;  // absent there and here
    bytes_ = from_.view().info->bytes();
    memory_ = {allocate(bytes_), cudaFree};
    address_ = memory_.get();
    EXPECT_EQ(cudaMemcpy(address_, from_.as<std::byte>().data(), bytes_, cudaMemcpyHostToDevice),
              cudaSuccess);
    // A copy from pageable memory may still be under way, and the queue does not wait for it.
    EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  }
  /// Puts the bytes of another of the same size there, in a queue.
  void copy(Queue& queue, const DeviceArray& other) const {
    EXPECT_EQ(cudaMemcpyAsync(address_, other.address_, bytes_, cudaMemcpyDeviceToDevice,
                              static_cast<cudaStream_t>(queue.stream())),
              cudaSuccess);
  }
  /// The bytes as they are now, in an array of its own.
  Array host() const {
    const View like = from_.view();
    Array to(like.dtype(), like.info->buffers[0].shape);
    EXPECT_EQ(cudaMemcpy(to.as<std::byte>().data(), address_, bytes_, cudaMemcpyDeviceToHost),
              cudaSuccess);
    return to;
  }
  View view() const {
    if (address_ == nullptr) return {};
    return {std::span<void* const>(&address_, 1), from_.view().info};
  }
  operator View() const { return view(); }
  const Array& array() const { return from_; }
  Columns columns(std::int64_t first, std::int64_t count) const { return {view(), first, count}; }

 private:
  static void* allocate(std::size_t bytes) {
    void* data = nullptr;
    EXPECT_EQ(cudaMalloc(&data, bytes + 1024), cudaSuccess);
    return data;
  }
  Array from_;
  std::size_t bytes_ = 0;
  std::shared_ptr<void> memory_;
  void* address_ = nullptr;
};

/// Runs `work(queue)` on a queue of the cuda backend and waits for it: at once, or captured into a
/// graph that is launched `replays` times, with `after(queue, replay)` called behind each launch.
inline void on_gpu_queue(const std::function<void(Queue&)>& work, int replays = 0,
                         const std::function<void(Queue&, int)>& after = {}) {
  const auto backend = execution::make_cuda_backend();
  const auto queue = backend->make_queue(execution::Lane::compute, "test");
  if (replays == 0) {
    work(*queue);
    queue->synchronize();
    return;
  }
  backend->begin_capture(*queue);
  work(*queue);
  const auto graph = backend->end_capture(*queue);
  for (int i = 0; i < replays; ++i) {
    graph->launch(*queue);
    if (after) after(*queue, i);
  }
  queue->synchronize();
}

}  // namespace stowage::kernels::test
