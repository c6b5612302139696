#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "execution/backend.hpp"
#include "execution/dtype.hpp"
#include "execution/queue.hpp"
#include "execution/tensor.hpp"
#include "kernels/matrix.hpp"

/// What every kernel test needs: tensors that own their bytes, random values with a printed seed,
/// a queue, finite differences, and errors by norm.
namespace stowage::kernels::test {

using execution::Dtype;
using execution::Queue;
using execution::View;
using Values = std::vector<double>;

/// The storage types that every operator is tested in.
inline constexpr Dtype kFloatingTypes[] = {Dtype::fp64, Dtype::fp32, Dtype::bf16};

/// A tensor with its bytes. New ones are poisoned: NaN, or a large negative integer, so that an
/// element that an operator forgot is seen. Copies share the bytes.
class Array {
 public:
  Array() = default;  ///< absent: its view is the absent view
  Array(Dtype dtype, std::vector<std::int64_t> shape, std::string name = "x");
  /// The same, with values; each is rounded to the dtype.
  Array(Dtype dtype, std::vector<std::int64_t> shape, const Values& values, std::string name = "x");

  void poison();
  void set(const Values& values);
  Values values() const;
  std::size_t size() const { return static_cast<std::size_t>(store_->info.buffers[0].elements()); }
  Dtype dtype() const { return store_->info.buffers[0].dtype; }
  template <class T>
  std::span<T> as() const {
    return {reinterpret_cast<T*>(store_->bytes.data()), size()};
  }

  View view() const;
  operator View() const { return view(); }
  Columns columns(std::int64_t first, std::int64_t count) const { return {view(), first, count}; }

 private:
  struct Store {
    execution::TensorInfo info;
    std::vector<std::byte> bytes;
    void* address = nullptr;
  };
  std::shared_ptr<Store> store_;
};

/// A uint8 tensor full of garbage; absent when no bytes are needed.
Array workspace(std::size_t bytes);

/// An int32 tensor of rank 1.
Array int32_array(const std::vector<std::int32_t>& values);

/// Random numbers of one test; the seed is printed, STOWAGE_TEST_SEED repeats a run.
class Random {
 public:
  Random();
  Values normal(std::int64_t count, double scale = 1);
  Values uniform(std::int64_t count, double low, double high);
  std::int64_t integer(std::int64_t low, std::int64_t high);  ///< in [low, high]

 private:
  std::mt19937_64 engine_;
};

/// Values as they are after rounding to a dtype.
Values rounded(const Values& values, Dtype dtype);

/// ||actual - expected|| / ||expected||; infinite when any value is not finite.
double relative_error(const Values& actual, const Values& expected);

/// The gradient of `loss` with respect to `x` by central differences. `loss` is called with changed
/// copies of x; in fp64 the error is near 1e-10 of the values.
Values numeric_gradient(const Values& x, const std::function<double(const Values&)>& loss,
                        double step = 1e-5);

double dot(const Values& a, const Values& b);

/// What a bf16 or fp32 result may differ from the fp64 result on the same rounded inputs, by norm:
/// one rounding to storage, and `c` roundings of the accumulation type per sqrt(terms) of a sum.
/// In fp64 both runs sum in different orders, so the same formula holds with its epsilon.
double tolerance(Dtype storage, double terms, double c = 4);

/// Runs `work(queue)` on a queue of the host backend and waits for it. Arrays of which `work` took
/// a view live until then, temporaries too.
void on_queue(const std::function<void(Queue&)>& work);

}  // namespace stowage::kernels::test
