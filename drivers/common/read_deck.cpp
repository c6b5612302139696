#include "drivers/common/read_deck.hpp"

#include "results/result_set.hpp"

namespace stowage::drivers {

inputs::Deck read_deck(const inputs::CommandLine& command) {
  if (command.from.empty()) return inputs::Deck::load(command.deck, command.overrides);
  return inputs::Deck::parse(results::read_config(command.from), command.from, command.overrides);
}

}  // namespace stowage::drivers
