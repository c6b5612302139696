#include "layers/parameters.hpp"

#include <algorithm>
#include <cmath>

#include "execution/philox.hpp"

namespace stowage::layers {
namespace {

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

double normal_deviation(const Parameter& parameter, double std, int layers) {
  if (parameter.init == Init::normal) return std;
  return parameter.init == Init::residual_normal ? std / std::sqrt(2.0 * layers) : 0;
}

std::vector<float> initial_values(const Parameter& parameter, std::uint64_t seed, double std,
                                  int layers) {
  const std::uint64_t stream = execution::stream_of(parameter.name);
  const float scale = execution::normal_scale(normal_deviation(parameter, std, layers));
  const auto value = [&](std::uint64_t i) -> float {
    switch (parameter.init) {
      case Init::normal:
      case Init::residual_normal:
        return execution::normal(seed, stream, i, scale);
      case Init::ones:
        return 1;
      case Init::zeros:
        return 0;
      case Init::uniform_half:
        return execution::symmetric_uniform(seed, stream, i, 0.5F);
      case Init::a_log:
        return static_cast<float>(std::log(1.0 + 15.0 * execution::uniform(seed, stream, i)));
      case Init::dt_bias:
        return dt_bias(execution::uniform(seed, stream, i));
    }
    return 0;
  };
  std::vector<float> values(static_cast<std::size_t>(parameter.elements()));
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = value(i);
  return values;
}

}  // namespace stowage::layers
