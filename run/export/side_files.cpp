#include "run/export/side_files.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <string_view>

#include "execution/error.hpp"
#include "inputs/huggingface/folder_file.hpp"
#include "inputs/huggingface/safetensors_file.hpp"

namespace stowage::run {

namespace fs = std::filesystem;
namespace hf = inputs::huggingface;

namespace {

constexpr std::int64_t kMaxSideBytes = std::int64_t{1} << 30;  // tokenizers have some ten MiB
constexpr std::int64_t kPieceBytes = std::int64_t{1} << 20;

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
  for (const auto& entry : fs::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    if (!is_side_file(name) || entry.is_directory()) continue;
    const hf::Descriptor file(hf::path_in(folder.string(), name), hf::Descriptor::Mode::read);
    if (file.size() > kMaxSideBytes)
      execution::throw_usage("{} has {} bytes; allowed: {}", file.path(), file.size(),
                             kMaxSideBytes);
    names.push_back(name);
  }
  std::sort(names.begin(), names.end());
  return names;
}

void copy_bytes(const fs::path& from, const fs::path& to) {
  const hf::Descriptor source(from.string(), hf::Descriptor::Mode::read);
  const hf::Descriptor copy(to.string(), hf::Descriptor::Mode::create);
  const std::int64_t bytes = source.size();
  std::vector<std::byte> piece;
  for (std::int64_t at = 0; at < bytes; at += std::ssize(piece)) {
    piece.resize(static_cast<std::size_t>(std::min(kPieceBytes, bytes - at)));
    source.read(at, piece);
    copy.write(at, piece);
  }
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

}  // namespace stowage::run
