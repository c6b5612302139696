#pragma once

#include "inputs/deck/command_line.hpp"
#include "inputs/deck/deck.hpp"
#include "parallel/job/mpi.hpp"

namespace stowage::run {

/// Collective. Refuses ranks whose command lines ask for other work: some in another mode, or with
/// options that the others do not have. Wrappers that start ranks can add them to one alone.
/// @throws Error (exit 2) on every rank, which names two of them and what each has
void require_same_command(const parallel::Communicator& world, const inputs::CommandLine& command);

/// Collective. Refuses ranks whose decks differ, one of which may have read a stale include.
/// @throws Error (exit 2) on every rank, which names two of them and a key with both values
void require_same_deck(const parallel::Communicator& world, const inputs::Deck& deck);

}  // namespace stowage::run
