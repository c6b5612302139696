#include "inputs/deck/check.hpp"

#include <string>

#include "execution/error.hpp"
#include "inputs/deck/section.hpp"

namespace stowage::inputs {

using execution::throw_usage;

namespace {

std::int64_t number(const Deck& deck, std::string_view key) { return deck.get<std::int64_t>(key); }

}  // namespace

void check(const Deck& deck) {
  static const std::vector<Declared> all = declared();
  for (const Declared& one : all)
    if (one.check) one.check(deck);
}

void check_divides(const Deck& deck, std::string_view small, std::string_view large) {
  if (number(deck, large) % number(deck, small) == 0) return;
  throw_usage("{} must divide {}", deck.cite(small), deck.cite(large));
}

void check_at_most(const Deck& deck, std::string_view small, std::string_view large) {
  if (number(deck, small) <= number(deck, large)) return;
  throw_usage("{} must be at most {}", deck.cite(small), deck.cite(large));
}

void check_product(const Deck& deck, std::string_view what,
                   std::initializer_list<std::string_view> keys, double most) {
  double product = 1;
  for (const std::string_view key : keys) product *= static_cast<double>(number(deck, key));
  if (product <= most) return;
  std::string sizes;
  for (const std::string_view key : keys)
    sizes += (sizes.empty() ? "" : " times ") + deck.cite(key);
  throw_usage("{}: {:.4g} {}, no machine has more than {:.7g}", sizes, product, what, most);
}

}  // namespace stowage::inputs
