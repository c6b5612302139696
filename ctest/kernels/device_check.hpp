#pragma once

#include <vector>

#include "ctest/kernels/device_mirror.hpp"
#include "ctest/kernels/support.hpp"

/// Tests of operators whose arrays are made by a class `Run(storage, inputs...)` with
/// `enqueue(queue, at)` and `outputs()`: the same class runs on the GPU in a storage type and on
/// the host in fp64, and the results are compared.
namespace stowage::kernels::test {

/// The storage types of device code.
inline constexpr Dtype kDeviceTypes[] = {Dtype::fp32, Dtype::bf16};

/// An array that an operator writes, and how far by norm it may be from fp64.
struct Output {
  const char* name;
  Array array;
  double tolerance;
};

/// Runs `gpu` on a GPU, at once and `replays` times from a graph, and `host` on the host; outputs
/// of `gpu` must be within their tolerances of those of `host`, and the same to the bit every time.
template <class Run>
void check_on_gpu(const Run& gpu, const Run& host, int replays = 3) {
  const std::vector<Output> ours = gpu.outputs(), expected = host.outputs();
  std::vector<Array> arrays;
  for (const Output& one : ours) arrays.push_back(one.array);
  const auto results =
      on_gpu([&](Queue& queue, DeviceMirror& at) { gpu.enqueue(queue, at); }, arrays, replays);
  on_queue([&](Queue& queue) {
    auto here = [](const Array& array) { return array.view(); };
    host.enqueue(queue, here);
  });
  for (std::size_t i = 0; i < ours.size(); ++i)
    EXPECT_LE(relative_error(results[i].values(), expected[i].array.values()), ours[i].tolerance)
        << ours[i].name << " in " << execution::name(ours[i].array.dtype());
}

}  // namespace stowage::kernels::test
