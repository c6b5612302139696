#include "inputs/deck/shipped.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <system_error>
#include <vector>

#include "execution/error.hpp"

namespace stowage::inputs {
namespace {

namespace fs = std::filesystem;

fs::path shipped_folder() {
  std::error_code none;
  const fs::path program = fs::read_symlink("/proc/self/exe", none);
  const fs::path installed = program.parent_path().parent_path() / "share/stowage/inputs";
  return fs::is_directory(installed, none) ? installed : fs::path(STOWAGE_INPUTS);
}

}  // namespace

fs::path shipped_file(std::string_view what, std::string_view folder,
                      const std::string& name_or_path) {
  std::error_code none;
  if (name_or_path.find_first_of("./") != std::string::npos || fs::exists(name_or_path, none))
    return name_or_path;
  const fs::path in = shipped_folder() / folder;
  std::vector<std::string> names;
  for (const fs::directory_entry& entry : fs::directory_iterator(in, none))
    if (entry.path().extension() == ".toml") names.push_back(entry.path().stem().string());
  std::ranges::sort(names);
  if (std::ranges::find(names, name_or_path) == names.end())
    execution::throw_usage(
        "{} {}: neither a file nor one of those that are shipped: {}", what, name_or_path,
        names.empty() ? "none is installed" : fmt::format("{}", fmt::join(names, ", ")));
  return in / (name_or_path + ".toml");
}

}  // namespace stowage::inputs
