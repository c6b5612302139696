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

/// An array that an operator writes, and how far by norm it may be from fp64. If they are columns
/// of it, all others must stay as they are.
struct Output {
  const char* name;
  Array array;
  double tolerance;
  std::int64_t first = 0, count = 0;  ///< columns; none: all

  bool inside(std::size_t i) const {
    if (count == 0) return true;
    const std::int64_t column = static_cast<std::int64_t>(i) % array.view().extent(1) - first;
    return column >= 0 && column < count;
  }
  Values part(const Values& all, bool of_columns) const {
    Values some;
    for (std::size_t i = 0; i < all.size(); ++i)
      if (inside(i) == of_columns) some.push_back(all[i]);
    return some;
  }
};

/// Runs `gpu` on a GPU, at once and `replays` times from a graph, and `host` on the host; outputs
/// of `gpu` must be within their tolerances of those of `host`, and the same to the bit every time.
template <class Run>
void check_on_gpu(const Run& gpu, const Run& host, int replays = 3,
                  double (*error)(const Values&, const Values&) = relative_error) {
  const std::vector<Output> ours = gpu.outputs(), expected = host.outputs();
  std::vector<Array> arrays;
  for (const Output& one : ours) arrays.push_back(one.array);
  const auto results =
      on_gpu([&](Queue& queue, DeviceMirror& at) { gpu.enqueue(queue, at); }, arrays, replays);
  on_queue([&](Queue& queue) {
    auto here = [](const Array& array) { return array.view(); };
    host.enqueue(queue, here);
  });
  for (std::size_t i = 0; i < ours.size(); ++i) {
    const Output& one = ours[i];
    const Values result = results[i].values(), wanted = expected[i].array.values();
    EXPECT_LE(error(one.part(result, true), one.part(wanted, true)), one.tolerance)
        << one.name << " in " << execution::name(one.array.dtype());
    EXPECT_EQ(one.part(result, false), one.part(wanted, false)) << "beside " << one.name;
  }
}

}  // namespace stowage::kernels::test
