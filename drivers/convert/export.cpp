#include "drivers/convert/export.hpp"

#include <fmt/ranges.h>

#include <filesystem>

#include "drivers/convert/byte_progress.hpp"
#include "execution/error.hpp"
#include "results/checkpoint_directory.hpp"
#include "run/export/folder_writer.hpp"

namespace stowage::drivers {
namespace {

namespace fs = std::filesystem;

fs::path find_checkpoint(const std::string& given) {
  if (!fs::is_directory(given)) return given;
  const results::CheckpointDirectory::Found found = results::CheckpointDirectory(given).latest();
  if (!found.path && found.skipped.empty())
    execution::throw_usage("{}: holds no checkpoint", given);
  if (!found.path)
    execution::throw_usage("{}: holds no checkpoint that is whole ({})", given,
                           fmt::join(found.skipped, "; "));
  return *found.path;
}

}  // namespace

std::string export_checkpoint(const std::string& checkpoint, const run::ExportOptions& options) {
  (void)run::new_folder(options.output);  // before anything is read
  run::ModelExport made(find_checkpoint(checkpoint), options);
  ByteProgress progress(made.bytes());
  made.write([&](std::int64_t bytes) { progress.add(bytes); }, false);
  return made.text() + "\n";
}

}  // namespace stowage::drivers
