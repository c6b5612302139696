#include "drivers/convert/side_files.hpp"

#include <algorithm>
#include <array>
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

std::vector<std::string> copy_side_files(const fs::path& from, const fs::path& to) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(from))
    if (entry.is_regular_file() && is_side_file(entry.path().filename().string()))
      names.push_back(entry.path().filename().string());
  std::sort(names.begin(), names.end());
  for (const std::string& name : names) {
    std::error_code error;
    fs::copy_file(from / name, to / name, fs::copy_options::overwrite_existing, error);
    if (error)
      execution::throw_usage("{} cannot be copied to {}: {}", (from / name).string(), to.string(),
                             error.message());
  }
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
  if (!file) execution::throw_usage("{} could not be written", path.string());
}

}  // namespace stowage::drivers
