#pragma once

#include <cuda_runtime_api.h>

#include <cstring>
#include <random>

#include "ctest/execution/host_support.hpp"
#include "ctest/support/seed.hpp"
#include "execution/cuda_backend.hpp"

namespace stowage::execution {

/// A cuda backend with one queue per lane; every test is skipped without a GPU.
class CudaBackendTest : public testing::Test {
 protected:
  static constexpr std::size_t kBytes = std::size_t{8} << 20;

  void SetUp() override {
    int devices = 0;
    if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) GTEST_SKIP() << "no GPU";
    backend = make_cuda_backend();
    compute = backend->make_queue(Lane::compute, "compute");
    d2h = backend->make_queue(Lane::d2h, "d2h");
    h2d = backend->make_queue(Lane::h2d, "h2d");
    event = backend->make_event();
    other = backend->make_event();
    device = backend->allocate(MemoryKind::device, 2 * kBytes);
    host = backend->allocate(MemoryKind::host, 2 * kBytes);
  }

  /// Fills the first half of the host arena with random bytes, the second half with 0xee.
  void randomise() {
    std::mt19937_64 generator(ctest::seed());
    for (std::size_t i = 0; i < kBytes; i += 8) {
      const std::uint64_t word = generator();
      std::memcpy(host->data() + i, &word, 8);
    }
    std::memset(host->data() + kBytes, 0xee, kBytes);
  }
  bool arrived() const { return std::memcmp(host->data(), host->data() + kBytes, kBytes) == 0; }

  void up(Queue& queue) { queue.copy(device->data(), host->data(), kBytes); }
  void across(Queue& queue) { queue.copy(device->data() + kBytes, device->data(), kBytes); }
  void down(Queue& queue) { queue.copy(host->data() + kBytes, device->data() + kBytes, kBytes); }

  std::unique_ptr<Backend> backend;
  std::unique_ptr<Queue> compute, d2h, h2d;
  std::unique_ptr<Event> event, other;
  std::unique_ptr<Arena> device, host;
};

}  // namespace stowage::execution
