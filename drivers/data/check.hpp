#pragma once

#include <string>

#include "inputs/data/token_source.hpp"

namespace stowage::drivers {

/// Reads every token and mask byte of a data file. Returns what it holds, for people; throws a
/// usage error that names file and offset of the first thing that is wrong.
std::string check_text(const inputs::SourceOptions& options);

}  // namespace stowage::drivers
