#include "kernels/blas_memory.hpp"

#include <gtest/gtest.h>

#include <string>
#include <thread>
#include <vector>

#include "ctest/support/in_child.hpp"
#include "execution/error.hpp"
#include "kernels/blas.hpp"

namespace stowage::kernels {
namespace {

using ctest::in_child;
using ctest::leave_room;

int multiply() {
  const std::vector<double> a(64 * 64, 1.0);
  std::vector<double> c(64 * 64);
  gemm(Transpose::no, Transpose::no, 64, 64, 64, 1.0, a.data(), 64, a.data(), 64, 0.0, c.data(),
       64);
  return c[0] == 64.0 ? 0 : 1;
}

TEST(blas_memory, that_is_not_there_is_the_machines_fault) {
  if (!ctest::kLimitsTell) GTEST_SKIP();
  const int code = in_child([] {
    leave_room(300);
    try {
      take_blas_memory(4);
    } catch (const execution::Error& error) {
      const bool named = std::string(error.what()).find("4 compute threads") != std::string::npos;
      return named ? static_cast<int>(error.exit()) : 90;
    }
    return 91;
  });
  EXPECT_EQ(code, static_cast<int>(execution::Exit::environment));
}

TEST(blas_memory, that_was_taken_lasts_for_all_products) {
  if (!ctest::kLimitsTell) GTEST_SKIP();
  const int code = in_child([] {
    take_blas_memory(3);
    leave_room(60);  // stacks of threads, but no buffer
    std::vector<std::thread> threads;
    for (int i = 0; i < 3; ++i) threads.emplace_back([] { multiply(); });
    for (std::thread& thread : threads) thread.join();
    return multiply();
  });
  EXPECT_EQ(code, 0);
}

}  // namespace
}  // namespace stowage::kernels
