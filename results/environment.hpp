#pragma once

#include <string_view>

#include "results/value.hpp"

/// Which variables of the environment a result set may hold: it is published, and the environment
/// holds secrets, addresses of launchers and names of machines.
namespace stowage::results {

/// True for the variables that say how a run was set up. Names are compared without case.
bool is_allowed_variable(std::string_view name);

/// True for a value with a password (user:secret@host) or an address (scheme://...), which no
/// variable is stored with.
bool holds_address(std::string_view value);

/// The allowed variables, sorted, their values without folders.
Fields allowed_environment();

}  // namespace stowage::results
