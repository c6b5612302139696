#include "run/command/same_deck.hpp"

#include <fmt/core.h>

#include <string>

#include "parallel/job/agreement.hpp"

namespace stowage::run {

void require_same_command(const parallel::Communicator& world, const inputs::CommandLine& command) {
  parallel::require_equal(world, "modes", command.mode());
  parallel::require_equal(world, "options", command.options);
}

void require_same_deck(const parallel::Communicator& world, const inputs::Deck& deck) {
  std::string lines;
  for (const inputs::Deck::Row& row : deck.rows())
    lines += fmt::format("{} = {}\n", row.key, inputs::to_toml(row.value));
  parallel::require_equal(world, "decks", lines + "digest " + deck.sha256());
}

}  // namespace stowage::run
