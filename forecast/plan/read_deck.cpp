#include "forecast/plan/read_deck.hpp"

#include <fmt/core.h>

#include <string>

#include "execution/error.hpp"
#include "execution/printable.hpp"
#include "results/result_set.hpp"

namespace stowage::forecast {

namespace {

inputs::Deck read(const inputs::CommandLine& command) {
  if (!command.from.empty())
    return inputs::Deck::parse_stored(results::read_config(command.from), command.from,
                                      command.overrides);
  if (command.deck.empty()) return inputs::Deck::parse("", "no deck", command.overrides);
  return inputs::Deck::load(command.deck, command.overrides);
}

}  // namespace

inputs::Deck read_deck(const inputs::CommandLine& command, bool speaks) {
  inputs::Deck deck = read(command);
  for (const std::string& line : deck.remarks())
    if (speaks) execution::print_remark(fmt::format("# {}", line));
  return deck;
}

}  // namespace stowage::forecast
