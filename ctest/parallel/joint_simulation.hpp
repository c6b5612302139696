#pragma once

#include <cstddef>
#include <span>

#include "parallel/proof/communication_trace.hpp"

namespace stowage::parallel {

/// Plays one program on all ranks, call by call, as queues and communicators would: a call starts
/// when what it waits for has ended; a collective ends when it is the next call of all members and
/// all have started it; a message passes when its send and its receive, each the next of its pair
/// of ranks, have started, and an exchange ends when all of its messages have passed.
///
/// The order in which this tries calls does not matter: what can happen stays possible.
/// @return true if all calls end, and calls that met agreed in what they exchange
bool runs_to_end(std::span<const RankTrace> traces, std::size_t program);

}  // namespace stowage::parallel
