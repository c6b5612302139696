#pragma once

#include "ctest/kernels/operator_arrays.hpp"

/// Operators with the largest magnitude of one output as another output.
namespace stowage::kernels::test {

inline Values stored_values(const Array& array) { return array.values(); }
inline Values stored_values(const ColumnsOf<Array>& columns) { return values(columns); }
inline Array whole_of(const Array& array) { return array; }
inline Array whole_of(const ColumnsOf<Array>& columns) { return columns.whole; }
inline Array with_whole(const Array&, const Array& whole) { return whole; }
inline ColumnsOf<Array> with_whole(const ColumnsOf<Array>& of, const Array& whole) {
  return {whole, of.first, of.count};
}

/// Measured, an operator stores what it stores otherwise, and the largest magnitude of `output`.
/// @param run run(op, arrays, outputs): what it leaves in outputs, as arrays
template <Operator Op, class Output, class Run>
void expect_measured(Op op, Arrays<Op> arrays, Output Arrays<Op>::*output, const Run& run) {
  const Array whole = whole_of(arrays.*output);
  const Values plain = run(op, arrays, std::vector<Array>{whole})[0].values();
  op.measured = true;
  arrays.amax = Array(execution::accumulation(op.storage), {1}, "amax");
  const std::vector<Array> left = run(op, arrays, std::vector<Array>{whole, arrays.amax});
  double largest = 0;
  for (const double value : stored_values(with_whole(arrays.*output, left[0])))
    largest = std::max(largest, std::abs(value));
  EXPECT_EQ(left[1].values(), Values{largest});
  const Values measured = left[0].values();
  for (std::size_t i = 0; i < plain.size(); ++i)
    EXPECT_TRUE(measured[i] == plain[i] || (std::isnan(measured[i]) && std::isnan(plain[i]))) << i;
}

/// The same on the host.
template <Operator Op, class Output>
void expect_measured(const Op& op, const Arrays<Op>& arrays, Output Arrays<Op>::*output) {
  expect_measured(op, arrays, output,
                  [](const Op& one, const Arrays<Op>& o, const std::vector<Array>& outputs) {
                    test::run(one, o);
                    return outputs;
                  });
}

}  // namespace stowage::kernels::test
