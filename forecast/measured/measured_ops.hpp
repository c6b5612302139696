#pragma once

#include <string>
#include <vector>

#include "forecast/rates/machine_facts.hpp"

namespace stowage::forecast {

/// Facts that steps show which stowage_train timed op by op, of all sets together:
/// - `op_efficiency`: the time that the rates of a machine expect of a kind of op, over its time;
/// - `links_with_compute`: links that fit the times of collectives beside compute, by kind of
///   collective and number of ranks, where three sizes were timed.
/// @param machine whose rates are expected
/// @throws Error (exit 2) if a file is no result set of such steps
MachineFacts measured_ops(const std::vector<std::string>& paths, MachineFacts machine);

}  // namespace stowage::forecast
