#pragma once

#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "ctest/kernels/support.hpp"
#include "kernels/digest/digest.hpp"

namespace stowage::kernels::test {

/// Digests of what many runs left, made in the queue and read once: no run waits for the host.
class DigestRows {
 public:
  explicit DigestRows(int runs) : sums_(2 * static_cast<std::size_t>(runs)) {
    void* data = nullptr;
    EXPECT_EQ(cudaMalloc(&data, bytes()), cudaSuccess);
    memory_ = {data, cudaFree};
    EXPECT_EQ(cudaMemset(data, 0, bytes()), cudaSuccess);
    EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);  // queues do not wait for this stream
  }
  void add(Queue& queue, int run, std::span<const View> tensors) const {
    void* const row = static_cast<std::uint64_t*>(memory_.get()) + 2 * std::ptrdiff_t{run};
    const View sums{std::span<void* const>(&row, 1), like_.view().info};
    std::uint64_t stream = 0;
    for (const View& tensor : tensors) add_digest(queue, {.stream = stream++}, tensor, sums);
  }
  /// Waits for all runs; those whose bits are not the first one's.
  int different() {
    EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
    EXPECT_EQ(cudaMemcpy(sums_.data(), memory_.get(), bytes(), cudaMemcpyDeviceToHost),
              cudaSuccess);
    int count = 0;
    for (std::size_t i = 2; i < sums_.size(); i += 2)
      count += !std::equal(sums_.begin(), sums_.begin() + 2, sums_.begin() + i);
    return count;
  }

 private:
  std::size_t bytes() const { return sums_.size() * sizeof(std::uint64_t); }

  std::vector<std::uint64_t> sums_;
  std::shared_ptr<void> memory_;
  Array like_{Dtype::int64, {2}};
};

}  // namespace stowage::kernels::test
