#include "drivers/common/op_efficiency.hpp"

#include <optional>
#include <sstream>

#include "drivers/common/words.hpp"
#include "execution/error.hpp"

namespace stowage::drivers {

std::map<std::string, double, std::less<>> op_efficiency(const inputs::Deck& deck) {
  constexpr const char* kKey = "machine.op_efficiency";
  std::map<std::string, double, std::less<>> parts;
  for (const std::string& given : deck.get<std::vector<std::string>>(kKey)) {
    std::istringstream stream(given);
    std::string kind, part, more;
    stream >> kind >> part >> more;
    const std::optional<double> value = number(part);
    if (!value || *value <= 0 || !more.empty())
      execution::throw_usage(
          "{}: '{}' is no efficiency; allowed: a kind of op and a number > 0, as "
          "\"mamba/scan 0.5\"",
          deck.cite(kKey), given);
    if (!parts.emplace(kind, *value).second)
      execution::throw_usage("{}: '{}' is given twice", deck.cite(kKey), kind);
  }
  return parts;
}

}  // namespace stowage::drivers
