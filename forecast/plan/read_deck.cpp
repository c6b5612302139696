#include "forecast/plan/read_deck.hpp"

#include <fmt/core.h>

#include <string>

#include "execution/error.hpp"
#include "execution/printable.hpp"
#include "results/result_set.hpp"

namespace stowage::forecast {

inputs::Deck read_deck(const inputs::CommandLine& command, bool speaks) {
  inputs::Deck deck = command.from.empty()
                          ? inputs::Deck::load(command.deck, command.overrides)
                          : inputs::Deck::parse_stored(results::read_config(command.from),
                                                       command.from, command.overrides);
  for (const std::string& line : deck.remarks())
    if (speaks) execution::print_remark(fmt::format("# {}", line));
  return deck;
}

}  // namespace stowage::forecast
