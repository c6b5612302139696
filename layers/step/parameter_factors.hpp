#pragma once

#include <optional>
#include <string>
#include <vector>

namespace stowage::layers {

/// A factor of the parameters whose names match: "layers.*.norm.weight 0.5".
struct ParameterFactor {
  std::string pattern;  ///< of a shell: * any letters, ? one, [ab] one of these
  double factor = 1;    ///< 0 to 1000

  bool matches(const std::string& parameter) const;
};

/// Null: `line` is no pattern with such a number behind it.
std::optional<ParameterFactor> read_parameter_factor(const std::string& line);

/// The factor of a parameter: of the last line that matches its name, or `otherwise`.
/// @param lines as read_parameter_factor() takes them
double factor_of(const std::string& parameter, const std::vector<std::string>& lines,
                 double otherwise);

}  // namespace stowage::layers
