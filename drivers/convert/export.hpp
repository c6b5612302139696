#pragma once

#include <string>

#include "run/export/model_export.hpp"

namespace stowage::drivers {

/// `stowage_convert export`: writes a folder (run/export/model_export.hpp), and says on stderr how
/// far it is.
/// @param checkpoint a file, or a folder of checkpoints: its latest
/// @return what was made, for people
/// @throws Error (exit 2) for a checkpoint that cannot be read, a model that the family does not
/// have, or an output that is there
std::string export_checkpoint(const std::string& checkpoint, const run::ExportOptions& options);

}  // namespace stowage::drivers
