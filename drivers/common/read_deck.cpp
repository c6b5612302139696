#include "drivers/common/read_deck.hpp"

#include <fmt/core.h>

#include <string>
#include <vector>

#include "execution/error.hpp"
#include "results/result_set.hpp"

namespace stowage::drivers {

inputs::Deck read_deck(const inputs::CommandLine& command, bool speaks) {
  if (command.from.empty()) return inputs::Deck::load(command.deck, command.overrides);
  std::vector<std::string> left_out;
  inputs::Deck deck = inputs::Deck::parse_stored(results::read_config(command.from), command.from,
                                                 command.overrides, &left_out);
  for (const std::string& line : left_out)
    if (speaks) fmt::print(stderr, "# {}\n", line);
  return deck;
}

}  // namespace stowage::drivers
