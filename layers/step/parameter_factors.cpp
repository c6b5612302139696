#include "layers/step/parameter_factors.hpp"

#include <fnmatch.h>

#include <sstream>

#include "inputs/deck/words.hpp"

namespace stowage::layers {

namespace {

constexpr double kMostFactor = 1000;  // beyond it updates leave every storage type soon

}  // namespace

bool ParameterFactor::matches(const std::string& parameter) const {
  return fnmatch(pattern.c_str(), parameter.c_str(), 0) == 0;
}

std::optional<ParameterFactor> read_parameter_factor(const std::string& line) {
  std::istringstream words(line);
  std::string pattern, factor, rest;
  if (!(words >> pattern >> factor) || words >> rest) return std::nullopt;
  const std::optional<double> value = inputs::number(factor);
  if (!value || *value < 0 || *value > kMostFactor) return std::nullopt;
  return ParameterFactor{std::move(pattern), *value};
}

double factor_of(const std::string& parameter, const std::vector<std::string>& lines,
                 double otherwise) {
  double factor = otherwise;
  for (const std::string& line : lines)
    if (const auto given = read_parameter_factor(line); given && given->matches(parameter))
      factor = given->factor;
  return factor;
}

}  // namespace stowage::layers
