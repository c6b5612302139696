#include "inputs/deck/words.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "execution/error.hpp"

namespace stowage::inputs {

std::vector<std::string> words(std::string_view list) {
  std::vector<std::string> result;
  for (std::size_t at = 0; at < list.size();) {
    const std::size_t end = std::min(list.find(',', at), list.size());
    std::string_view word = list.substr(at, end - at);
    word.remove_prefix(std::min(word.find_first_not_of(' '), word.size()));
    word = word.substr(0, word.find_last_not_of(' ') + 1);
    if (!word.empty()) result.emplace_back(word);
    at = end + 1;
  }
  return result;
}

std::optional<double> number(std::string_view word) {
  double value = 0;
  const auto [rest, error] = std::from_chars(word.data(), word.data() + word.size(), value);
  if (error != std::errc() || rest != word.data() + word.size() || !std::isfinite(value)) return {};
  return value;
}

void require_words(std::string_view option, const std::vector<std::string>& given,
                   std::initializer_list<std::string_view> allowed) {
  const std::string some = fmt::format("{}", fmt::join(allowed, ","));
  if (given.empty()) execution::throw_usage("{}: must be some of {}", option, some);
  for (auto word = given.begin(); word != given.end(); ++word) {
    if (std::ranges::find(allowed, *word) == allowed.end())
      execution::throw_usage("{} {}: must be some of {}", option, *word, some);
    if (std::find(given.begin(), word, *word) != word)
      execution::throw_usage("{} {}: is given twice", option, *word);
  }
}

}  // namespace stowage::inputs
