#pragma once

#include <filesystem>
#include <string>
#include <string_view>

namespace stowage::inputs {

/// A file that comes with the programs, as `inputs/NAME.toml` or `inputs/machines/NAME.toml`:
/// beside installed programs (share/stowage/inputs), or else in the source of this build.
/// @param folder in inputs/: "machines", or "" for decks  @param name_or_path a name has neither /
/// nor .; anything else, and what is a file, is a path and returned as it is
/// @throws Error (exit 2) that names `what` and all names, for a name that is not there
std::filesystem::path shipped_file(std::string_view what, std::string_view folder,
                                   const std::string& name_or_path);

}  // namespace stowage::inputs
