#include "drivers/convert/side_files.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <iterator>
#include <string_view>

#include "execution/error.hpp"

namespace stowage::drivers {

namespace fs = std::filesystem;

namespace {

/// Beginnings of names; of the rest, nothing is needed to use the weights.
constexpr std::array<std::string_view, 10> kBeginnings = {"tokenizer",
                                                          "vocab",
                                                          "merges",
                                                          "special_tokens_map",
                                                          "added_tokens",
                                                          "chat_template",
                                                          "generation_config",
                                                          "LICENSE",
                                                          "sentencepiece",
                                                          "spiece"};

bool is_side_file(const std::string& name) {
  return std::any_of(kBeginnings.begin(), kBeginnings.end(),
                     [&](std::string_view start) { return name.starts_with(start); });
}

}  // namespace

std::vector<std::string> side_files(const fs::path& folder) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder))
    if (entry.is_regular_file() && is_side_file(entry.path().filename().string()))
      names.push_back(entry.path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}

std::string read_text(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) execution::throw_usage("{} cannot be read", path.string());
  return {std::istreambuf_iterator<char>(file), {}};
}

void write_text(const fs::path& path, const std::string& text) {
  std::ofstream file(path, std::ios::binary);
  file << text;
  file.close();
  if (!file)
    throw execution::Error(
        execution::Exit::runtime,
        fmt::format("{} could not be written whole: {}", path.string(), std::strerror(errno)));
}

}  // namespace stowage::drivers
