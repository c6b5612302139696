#include "layers/parameters.hpp"

#include <algorithm>
#include <cmath>

#include "execution/error.hpp"
#include "execution/philox.hpp"
#include "layers/blocks.hpp"

namespace stowage::layers {
namespace {

template <class Value>
void generate(std::int64_t first, std::span<float> values, Value&& value) {
  for_blocks(static_cast<std::int64_t>(values.size()), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i)
      values[static_cast<std::size_t>(i)] = value(first + i);
  });
}

/// Nearly normal values, two at a time where two share their random blocks.
void generate_normal(std::int64_t first, std::span<float> values, std::uint64_t seed,
                     std::uint64_t stream, float scale) {
  for_blocks(static_cast<std::int64_t>(values.size()), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end;) {
      const auto index = static_cast<std::uint64_t>(first + i);
      float* value = &values[static_cast<std::size_t>(i)];
      if (index % 2 == 0 && i + 1 < end) {
        std::int32_t even, odd;
        execution::normal_pair(seed, stream, index / 2, even, odd);
        value[0] = static_cast<float>(even) * scale;
        value[1] = static_cast<float>(odd) * scale;
        i += 2;
      } else {
        *value = execution::normal(seed, stream, index, scale);
        ++i;
      }
    }
  });
}

/// Inverse of softplus at a step size that is log-uniform in [1e-3, 1e-1], floored at 1e-4
/// (mamba_ssm's initialisation of dt_bias).
float dt_bias(double uniform) {
  const double low = std::log(1e-3);
  const double high = std::log(1e-1);
  const double dt = std::max(std::exp(low + uniform * (high - low)), 1e-4);
  return static_cast<float>(dt + std::log(-std::expm1(-dt)));
}

}  // namespace

std::int64_t Parameter::elements() const {
  std::int64_t product = 1;
  for (const std::int64_t extent : shape) product *= extent;
  return product;
}

std::string gradient_name(const std::string& parameter) { return "gradient/" + parameter; }
std::string master_name(const std::string& parameter) { return "master/" + parameter; }
std::string first_moment_name(const std::string& parameter) { return "adam_m/" + parameter; }
std::string second_moment_name(const std::string& parameter) { return "adam_v/" + parameter; }

std::vector<float> initial_values(const Parameter& parameter, std::uint64_t seed, double std,
                                  int layers) {
  std::vector<float> values(static_cast<std::size_t>(parameter.elements()));
  initial_values(parameter, seed, std, layers, 0, values);
  return values;
}

void initial_values(const Parameter& parameter, std::uint64_t seed, double std, int layers,
                    std::int64_t first, std::span<float> values) {
  const std::uint64_t stream = execution::stream_of(parameter.name);
  const auto normal = [&](double deviation) {
    generate_normal(first, values, seed, stream, execution::normal_scale(deviation));
  };
  const auto uniform = [&](std::int64_t i) {
    return execution::uniform(seed, stream, static_cast<std::uint64_t>(i));
  };
  switch (parameter.init) {
    case Init::normal:
      return normal(std);
    case Init::residual_normal:
      return normal(std / std::sqrt(2.0 * layers));
    case Init::ones:
      return std::fill(values.begin(), values.end(), 1.0F);
    case Init::zeros:
      return std::fill(values.begin(), values.end(), 0.0F);
    case Init::uniform_half:
      return generate(first, values, [=](std::int64_t i) {
        return execution::symmetric_uniform(seed, stream, static_cast<std::uint64_t>(i), 0.5F);
      });
    case Init::a_log:
      return generate(first, values, [&](std::int64_t i) {
        return static_cast<float>(std::log(1.0 + 15.0 * uniform(i)));
      });
    case Init::dt_bias:
      return generate(first, values, [&](std::int64_t i) { return dt_bias(uniform(i)); });
  }
}

}  // namespace stowage::layers
