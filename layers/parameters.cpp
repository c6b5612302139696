#include "layers/parameters.hpp"

#include <cmath>

#include "execution/error.hpp"
#include "execution/host_loops.hpp"
#include "execution/philox.hpp"

namespace stowage::layers {
namespace {

constexpr std::int64_t kGrain = 1 << 16;

template <class Value>
std::vector<float> generate(const Parameter& parameter, Value&& value) {
  std::vector<float> values(static_cast<std::size_t>(parameter.elements()));
  execution::host_for(parameter.elements(), kGrain, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) values[static_cast<std::size_t>(i)] = value(i);
  });
  return values;
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
  const std::uint64_t stream = execution::stream_of(parameter.name);
  const auto normal = [&](double deviation) {
    const float scale = execution::normal_scale(deviation);
    return generate(parameter, [=](std::int64_t i) {
      return execution::normal(seed, stream, static_cast<std::uint64_t>(i), scale);
    });
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
      return generate(parameter, [](std::int64_t) { return 1.0F; });
    case Init::zeros:
      return generate(parameter, [](std::int64_t) { return 0.0F; });
    case Init::uniform_half:
      return generate(parameter, [=](std::int64_t i) {
        return execution::symmetric_uniform(seed, stream, static_cast<std::uint64_t>(i), 0.5F);
      });
    case Init::a_log:
      return generate(parameter, [&](std::int64_t i) {
        return static_cast<float>(std::log(1.0 + 15.0 * uniform(i)));
      });
    case Init::dt_bias:
      return generate(parameter, [&](std::int64_t i) { return dt_bias(uniform(i)); });
  }
  return {};
}

}  // namespace stowage::layers
