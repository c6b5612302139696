#include "ctest/kernels/support.hpp"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <limits>
#include <stdexcept>

#include "ctest/support/seed.hpp"
#include "execution/fp8.hpp"

namespace stowage::kernels::test {

using execution::Bf16;

namespace {

// Calls f with a value of the C++ type of a dtype.
template <class F>
void with_type(Dtype dtype, F&& f) {
  switch (dtype) {
    case Dtype::fp64:
      return f(double{});
    case Dtype::fp32:
      return f(float{});
    case Dtype::bf16:
      return f(Bf16{});
    case Dtype::int32:
      return f(std::int32_t{});
    case Dtype::int64:
      return f(std::int64_t{});
    case Dtype::uint8:
      return f(std::uint8_t{});
    case Dtype::e4m3:
      return f(execution::E4m3{});
    case Dtype::e5m2:
      return f(execution::E5m2{});
  }
}

// What on_queue keeps alive until its queue is done.
thread_local std::vector<std::shared_ptr<void>> kept_until_done;

}  // namespace

Array::Array(Dtype dtype, std::vector<std::int64_t> shape, std::string name)
    : store_(std::make_shared<Store>()) {
  store_->info.name = std::move(name);
  store_->info.buffers.push_back({"payload", dtype, std::move(shape)});
  store_->bytes.resize(store_->info.buffers[0].bytes());
  store_->address = store_->bytes.data();
  poison();
}

Array::Array(Dtype dtype, std::vector<std::int64_t> shape, const Values& values, std::string name)
    : Array(dtype, std::move(shape), std::move(name)) {
  set(values);
}

// All bits set is a NaN in every floating type; integers get a value that no index can have.
void Array::poison() {
  const bool floating = execution::epsilon(dtype()) > 0;
  std::ranges::fill(store_->bytes, std::byte{static_cast<unsigned char>(floating ? 0xff : 0x9c)});
}

void Array::set(const Values& values) {
  if (values.size() != size()) throw std::invalid_argument("Array::set: wrong number of values");
  with_type(dtype(), [&]<class T>(T) {
    std::ranges::transform(values, as<T>().begin(), [](double v) { return static_cast<T>(v); });
  });
}

Values Array::values() const {
  Values result(size());
  with_type(dtype(), [&]<class T>(T) {
    std::ranges::transform(as<T>(), result.begin(), [](T v) { return static_cast<double>(v); });
  });
  return result;
}

View Array::view() const {
  if (!store_) return {};
  kept_until_done.push_back(store_);
  return {std::span<void* const>(&store_->address, 1), &store_->info};
}

Array workspace(std::size_t bytes) {
  return bytes == 0 ? Array()
                    : Array(Dtype::uint8, {static_cast<std::int64_t>(bytes)}, "workspace");
}

Array int32_array(const std::vector<std::int32_t>& values) {
  return {Dtype::int32,
          {static_cast<std::int64_t>(values.size())},
          Values(values.begin(), values.end())};
}

Random::Random() : engine_(ctest::seed()) {}

Values Random::normal(std::int64_t count, double scale) {
  std::normal_distribution<double> distribution(0, scale);
  Values values(static_cast<std::size_t>(count));
  std::ranges::generate(values, [&] { return distribution(engine_); });
  return values;
}

Values Random::uniform(std::int64_t count, double low, double high) {
  std::uniform_real_distribution<double> distribution(low, high);
  Values values(static_cast<std::size_t>(count));
  std::ranges::generate(values, [&] { return distribution(engine_); });
  return values;
}

std::int64_t Random::integer(std::int64_t low, std::int64_t high) {
  return std::uniform_int_distribution<std::int64_t>(low, high)(engine_);
}

Values rounded(const Values& values, Dtype dtype) {
  return Array(dtype, {static_cast<std::int64_t>(values.size())}, values).values();
}

double relative_error(const Values& actual, const Values& expected) {
  if (actual.size() != expected.size()) throw std::invalid_argument("relative_error: sizes differ");
  double difference = 0, norm = 0;
  for (std::size_t i = 0; i < actual.size(); ++i) {
    difference += (actual[i] - expected[i]) * (actual[i] - expected[i]);
    norm += expected[i] * expected[i];
  }
  if (!std::isfinite(difference)) return std::numeric_limits<double>::infinity();
  return difference == 0 ? 0 : std::sqrt(difference / norm);
}

Values numeric_gradient(const Values& x, const std::function<double(const Values&)>& loss,
                        double step) {
  Values gradient(x.size()), changed = x;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double h = step * std::max(1.0, std::abs(x[i]));
    changed[i] = x[i] + h;
    const double above = loss(changed);
    changed[i] = x[i] - h;
    gradient[i] = (above - loss(changed)) / (2 * h);
    changed[i] = x[i];
  }
  return gradient;
}

double dot(const Values& a, const Values& b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

double tolerance(Dtype storage, double terms, double c) {
  return execution::epsilon(storage) +
         c * execution::epsilon(execution::accumulation(storage)) * std::sqrt(terms);
}

void on_queue(const std::function<void(Queue&)>& work) {
  const auto backend = execution::make_host_backend();
  const auto queue = backend->make_queue(execution::Lane::compute, "test");
  work(*queue);
  queue->synchronize();
  kept_until_done.clear();
}

}  // namespace stowage::kernels::test
