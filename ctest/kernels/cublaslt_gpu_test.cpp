// cuBLASLt is loaded at its first use. No GPU is needed.
#include "kernels/linear/cublaslt.hpp"

#include <fmt/core.h>
#include <gtest/gtest.h>

#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "kernels/linear/dense_product.hpp"

namespace stowage::kernels {
namespace {

bool is_in_memory(const std::string& library) {
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);)
    if (line.find(library) != std::string::npos) return true;
  return false;
}

// One case: what a process has loaded it keeps.
TEST(cublaslt, is_loaded_by_the_first_of_several_threads_that_use_it) {
  ASSERT_TRUE(is_in_memory("libcudart.so"));
  EXPECT_FALSE(is_in_memory("libcublasLt.so"));
  std::vector<std::thread> threads;
  std::vector<const Cublaslt*> seen(4);
  for (const Cublaslt*& one : seen) threads.emplace_back([&one] { one = &cublaslt(); });
  for (std::thread& thread : threads) thread.join();
  EXPECT_TRUE(is_in_memory("libcublasLt.so"));
  for (const Cublaslt* one : seen) EXPECT_EQ(one, seen.front());
  EXPECT_EQ(product_library_number() / 10000, CUBLAS_VER_MAJOR);
  EXPECT_EQ(product_library().find(fmt::format("cuBLASLt {}.", CUBLAS_VER_MAJOR)), 0U);
  EXPECT_STRNE(cublaslt().GetStatusString(CUBLAS_STATUS_SUCCESS), "");
}

}  // namespace
}  // namespace stowage::kernels
