#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "ctest/execution/scale_rows.hpp"

namespace stowage::execution {

inline constexpr std::int64_t kRows = 37, kColumns = 1001, kCount = kRows * kColumns;

/// Inputs whose products are exact in fp32, and what comes out.
struct ScaleRowsData {
  ScaleRowsData() : in(kCount), scale(kRows), out(kCount, -1.0F) {
    for (std::size_t i = 0; i < in.size(); ++i) in[i] = static_cast<float>(i % 4096);
    for (std::size_t r = 0; r < scale.size(); ++r) scale[r] = static_cast<float>(r + 1);
  }
  void check() const {
    for (std::size_t i = 0; i < out.size(); ++i)
      ASSERT_EQ(out[i], in[i] * scale[i / kColumns]) << "element " << i;
  }
  std::vector<float> in, scale, out;
};

}  // namespace stowage::execution
