#pragma once

#include <algorithm>
#include <functional>
#include <string_view>
#include <vector>

#include "ctest/kernels/device_check.hpp"
#include "ctest/kernels/operator_arrays.hpp"

/// An operator on a GPU in a storage type against the host in fp64, from its declaration alone.
namespace stowage::kernels::test {

/// How far an output may be from fp64, by name.
using Tolerances = std::function<double(std::string_view)>;

/// An operator with its arrays, as check_on_gpu runs it.
template <Operator Op>
struct OperatorRun {
  Op op;
  Arrays<Op> arrays;
  Tolerances tolerance;

  template <class At>
  void enqueue(Queue& queue, At& at) const {
    test::enqueue(queue, op, arrays, at);
  }
  /// All that it stores or adds to.
  std::vector<Output> outputs() const {
    std::vector<Output> all;
    op.each(
        [&](const Spec& spec, const auto& one) {
          if (!spec.present || spec.workspace || spec.access == execution::Access::read) return;
          if constexpr (requires { one.whole; })
            all.push_back({spec.name, one.whole, tolerance(spec.name), one.first, one.count});
          else
            all.push_back({spec.name, one, tolerance(spec.name)});
        },
        arrays);
    return all;
  }
};

/// Runs `op` on `arrays` on a GPU, at once and from graphs, and on their values in fp64 on the
/// host. @param replays of the graph, which must leave the same bits; error: of an output
template <Operator Op>
void check_on_gpu(const Op& op, const Arrays<Op>& arrays, const Tolerances& tolerance,
                  int replays = 2, double (*error)(const Values&, const Values&) = relative_error) {
  Op wide = op;
  wide.storage = Dtype::fp64;
  if constexpr (requires { op.result; }) wide.result = Dtype::fp64;
  check_on_gpu(OperatorRun<Op>{op, arrays, tolerance},
               OperatorRun<Op>{wide, in_type_of(wide, arrays), tolerance}, replays, error);
}

/// All that `op` stores.
template <Operator Op>
std::vector<Output> outputs_of(const Op& op, const Arrays<Op>& arrays) {
  return OperatorRun<Op>{op, arrays, [](std::string_view) { return 0.0; }}.outputs();
}

/// Runs `op` on `arrays` on a GPU, at once and from graphs: all must leave the same bits, which it
/// gives.
template <Operator Op>
std::vector<Array> expect_same_bits(const Op& op, const Arrays<Op>& arrays, int replays) {
  std::vector<Array> stored;
  for (const Output& one : outputs_of(op, arrays)) stored.push_back(one.array);
  return on_gpu([&](Queue& queue, DeviceMirror& at) { enqueue(queue, op, arrays, at); }, stored,
                replays);
}

/// Runs `op` on `arrays` on a GPU and then on the host: what is stored must be the same to the bit.
template <Operator Op>
void expect_host_bits(const Op& op, const Arrays<Op>& arrays, int replays = 2) {
  const std::vector<Array> results = expect_same_bits(op, arrays, replays);
  run(op, arrays);
  const std::vector<Output> outputs = outputs_of(op, arrays);
  for (std::size_t i = 0; i < outputs.size(); ++i)
    EXPECT_TRUE(std::ranges::equal(bytes_of(results[i]), bytes_of(outputs[i].array)))
        << outputs[i].name;
}

/// What an operator leaves in `outputs` on a GPU.
template <Operator Op>
std::vector<Array> on_gpu(const Op& op, const Arrays<Op>& arrays,
                          const std::vector<Array>& outputs) {
  return on_gpu([&](Queue& queue, DeviceMirror& at) { enqueue(queue, op, arrays, at); }, outputs);
}

}  // namespace stowage::kernels::test
