#include "drivers/bench_kernels/operand.hpp"

#include <cstring>
#include <functional>
#include <limits>
#include <numeric>

#include "drivers/bench_kernels/bound.hpp"
#include "execution/error.hpp"
#include "execution/fp8.hpp"
#include "kernels/elementwise/elementwise.hpp"
#include "kernels/fp8/quantise.hpp"
#include "run/measure/random.hpp"

namespace stowage::drivers::bench {
namespace {

using execution::Bf16;
using execution::Dtype;

std::int64_t product(const std::vector<std::int64_t>& shape) {
  return std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>());
}

/// Element i of an array of a floating dtype.
double element(const std::vector<std::byte>& content, std::size_t i, Dtype dtype) {
  const auto read = [&]<class S>() {
    S value;
    std::memcpy(&value, content.data() + i * sizeof value, sizeof value);
    return static_cast<double>(value);
  };
  if (execution::size_bytes(dtype) == 1) return execution::with_fp8_type(dtype, read);
  return execution::with_storage_type(dtype, read);
}

}  // namespace

Operand::Operand(run::Processor& processor, std::string name, Role role, Dtype dtype,
                 std::vector<std::int64_t> shape)
    : processor_(processor),
      name_(std::move(name)),
      role_(role),
      dtype_(dtype),
      shape_(std::move(shape)),
      elements_(product(shape_)),
      memory_(processor.device_memory(bytes())) {}

std::size_t Operand::bytes() const {
  return static_cast<std::size_t>(elements_) * execution::size_bytes(dtype_);
}

void Operand::refill() { fill_normal(fill_.seed, fill_.mean, fill_.deviation); }

void Operand::fill_normal(std::int64_t seed, double mean, double deviation) {
  fill_ = {seed, mean, deviation};
  const auto key = static_cast<std::uint64_t>(seed);
  const std::uint64_t stream = execution::stream_of(name_);
  const float scale = execution::normal_scale(deviation);
  if (dtype_ == Dtype::bf16)
    execution::parallel_for(
        processor_.queue(), elements_,
        run::RandomNormal<Bf16>{key, stream, static_cast<float>(mean), scale, as<Bf16>()});
  else if (dtype_ == Dtype::fp32)
    execution::parallel_for(
        processor_.queue(), elements_,
        run::RandomNormal<float>{key, stream, static_cast<float>(mean), scale, as<float>()});
  else
    fill_normal_of_8_bits(seed, mean, deviation);
}

/// The values of bf16, rounded with a scale of 1.
void Operand::fill_normal_of_8_bits(std::int64_t seed, double mean, double deviation) {
  const double largest = execution::with_fp8_type(dtype_, []<class S>() { return S::largest(); });
  const auto amax = static_cast<float>(largest);
  Operand wide(processor_, name_, Role::input, Dtype::bf16, shape_);
  Operand limit(processor_, "amax", Role::input, Dtype::fp32, {1});
  Operand scale(processor_, "scale", Role::output, Dtype::fp32, {1});
  wide.fill_normal(seed, mean, deviation);
  limit.upload(&amax);
  const kernels::Quantise quantise{.rows = shape_.at(0),
                                   .width = shape_.at(1),
                                   .storage = Dtype::bf16,
                                   .payload = dtype_,
                                   .transposed = false};
  const Bound x(wide), of_x(limit), to(*this), found(scale);
  quantise.run(processor_.queue(), {.x = x.view(),
                                    .amax = of_x,
                                    .payload = to.view(),
                                    .scale = found.view(),
                                    .transposed = {},
                                    .transposed_scale = {}});
  processor_.queue().synchronize();
}

void Operand::poison() {
  const bool floating = execution::epsilon(dtype_) > 0;
  const Bound all(*this);
  kernels::fill(processor_.queue(), all,
                floating ? std::numeric_limits<double>::quiet_NaN() : -1.0);
}

void Operand::upload(const void* from) {
  processor_.queue().copy(data(), from, bytes());
  processor_.queue().synchronize();
}

std::vector<std::byte> Operand::download() const {
  std::vector<std::byte> content(bytes());
  processor_.queue().copy(content.data(), data(), bytes());
  processor_.queue().synchronize();
  return content;
}

std::vector<double> Operand::rows(std::int64_t first, std::int64_t count) const {
  const std::int64_t width = elements_ / shape_.front();
  const std::size_t size = execution::size_bytes(dtype_);
  std::vector<std::byte> content(static_cast<std::size_t>(count * width) * size);
  processor_.queue().copy(content.data(),
                          memory_->data() + static_cast<std::size_t>(first * width) * size,
                          content.size());
  processor_.queue().synchronize();
  std::vector<double> values(static_cast<std::size_t>(count * width));
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = element(content, i, dtype_);
  return values;
}

std::vector<double> Operand::columns(std::int64_t first, std::int64_t count) const {
  const std::vector<std::byte> content = download();
  const std::int64_t width = elements_ / shape_.front();
  std::vector<double> values;
  values.reserve(static_cast<std::size_t>(shape_.front() * count));
  for (std::int64_t row = 0; row < shape_.front(); ++row)
    for (std::int64_t column = first; column < first + count; ++column)
      values.push_back(element(content, static_cast<std::size_t>(row * width + column), dtype_));
  return values;
}

std::vector<double> Operand::block(std::int64_t row, std::int64_t rows, std::int64_t column,
                                   std::int64_t columns) const {
  const std::size_t size = execution::size_bytes(dtype_);
  const auto bytes_of = [size](std::int64_t count) {
    return static_cast<std::size_t>(count) * size;
  };
  const std::int64_t width = elements_ / shape_.front();
  std::vector<std::byte> content(bytes_of(rows * columns));
  for (std::int64_t i = 0; i < rows; ++i)
    processor_.queue().copy(content.data() + bytes_of(i * columns),
                            memory_->data() + bytes_of((row + i) * width + column),
                            bytes_of(columns));
  processor_.queue().synchronize();
  std::vector<double> values(static_cast<std::size_t>(rows * columns));
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = element(content, i, dtype_);
  return values;
}

}  // namespace stowage::drivers::bench
