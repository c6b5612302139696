#include "random_run.hpp"

#include <gtest/gtest.h>

#include <algorithm>

#if STOWAGE_TEST_CUDA
#include <cuda_runtime_api.h>

#include "execution/cuda_backend.hpp"
#endif

namespace stowage::ctest {

#if STOWAGE_TEST_CUDA
std::unique_ptr<Backend> make_test_backend(const HostOptions&) { return make_cuda_backend(); }
bool has_test_backend() {
  int devices = 0;
  return cudaGetDeviceCount(&devices) == cudaSuccess && devices > 0;
}
#else
std::unique_ptr<Backend> make_test_backend(const HostOptions& host) {
  return make_host_backend(host);
}
bool has_test_backend() { return true; }
#endif

RandomOutcome run_random(const RandomShape& shape, const offload::PlannerOptions& options,
                         int steps, const HostOptions& host, const ExecutorOptions& how) {
  RandomOutcome outcome;
  outcome.random = std::make_unique<RandomProgram>(shape);
  const RandomProgram& random = *outcome.random;
  outcome.plan = offload::make_plan(random.program, random.layout, options);
  const auto backend = make_test_backend(host);
  Device device(*backend, random.layout, outcome.plan.bytes[static_cast<int>(Region::transient)],
                outcome.plan.bytes[static_cast<int>(Region::host)]);
  Executor executor(random.program, outcome.plan, device, how);
  const std::uint64_t allocations = backend->allocations();
  std::vector<std::byte>& state = outcome.state;
  for (int i = 0; i < steps; ++i) {
    const std::span<std::byte> slot = executor.stage(random.input);
    std::fill(slot.begin(), slot.end(), static_cast<std::byte>(i + 1));
    executor.step();
    if (i < 2) continue;
    const auto sum = executor.result(random.output, 2);
    state.insert(state.end(), sum.begin(), sum.end());
  }
  device.synchronize();
  EXPECT_EQ(backend->allocations(), allocations);
  for (const Bucket& bucket : random.layout.buckets())
    for (const std::string& tensor : bucket.tensors) {
      std::vector<std::byte> bytes(random.layout.info(tensor).bytes());
      device.read(tensor, bytes);
      state.insert(state.end(), bytes.begin(), bytes.end());
    }
  outcome.counters = executor.counters();
  outcome.nodes = executor.graph_nodes();
  return outcome;
}

}  // namespace stowage::ctest
