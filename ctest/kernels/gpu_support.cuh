#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstddef>
#include <random>
#include <vector>

#include "ctest/kernels/need_gpu.hpp"

/// What device tests share: owned device memory, random bf16, relative errors.
namespace stowage::test {

/// Device memory of one type, freed at the end. Fresh memory is filled with a byte: 0xFF is NaN.
template <class T>
class Buffer {
 public:
  explicit Buffer(std::size_t count, int fill = 0xFF) : count_(count) {
    EXPECT_EQ(cudaMalloc(&data_, count * sizeof(T) + 1024), cudaSuccess);
    EXPECT_EQ(cudaMemset(data_, fill, count * sizeof(T) + 1024), cudaSuccess);
  }
  explicit Buffer(const std::vector<T>& host) : Buffer(host.size()) {
    EXPECT_EQ(cudaMemcpy(data_, host.data(), count_ * sizeof(T), cudaMemcpyHostToDevice),
              cudaSuccess);
  }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  ~Buffer() { cudaFree(data_); }

  T* get() const { return data_; }
  std::size_t count() const { return count_; }
  std::vector<T> host() const {
    std::vector<T> values(count_);
    EXPECT_EQ(cudaMemcpy(values.data(), data_, count_ * sizeof(T), cudaMemcpyDeviceToHost),
              cudaSuccess);
    return values;
  }

 private:
  T* data_ = nullptr;
  std::size_t count_;
};

inline double to_double(double value) { return value; }
inline double to_double(float value) { return value; }
inline double to_double(__nv_bfloat16 value) { return __bfloat162float(value); }

/// || out - reference || / || reference || over `columns` columns from `first` on of a row-major
/// matrix of width `width`; NaN in `out` gives NaN.
template <class T>
double relative_error(const std::vector<T>& out, std::size_t width, std::size_t first,
                      const std::vector<double>& reference, std::size_t columns) {
  double error = 0, norm = 0;
  for (std::size_t i = 0; i < reference.size(); ++i) {
    const double expected = reference[i];
    const double difference = to_double(out[i / columns * width + first + i % columns]) - expected;
    error += difference * difference;
    norm += expected * expected;
  }
  return std::sqrt(error / (norm > 0 ? norm : 1));
}

inline std::vector<__nv_bfloat16> random_bf16(std::size_t count, std::mt19937_64& generator) {
  std::normal_distribution<float> normal;
  std::vector<__nv_bfloat16> values(count);
  for (__nv_bfloat16& value : values) value = __float2bfloat16(normal(generator));
  return values;
}

inline std::vector<float> random_float(std::size_t count, float mean, float deviation,
                                       std::mt19937_64& generator) {
  std::normal_distribution<float> normal(mean, deviation);
  std::vector<float> values(count);
  for (float& value : values) value = normal(generator);
  return values;
}

}  // namespace stowage::test
