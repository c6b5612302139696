#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace stowage::drivers {

/// The folder beside checkpoints that keeps what a published model has beside its weights.
inline constexpr const char* kSideFolder = "huggingface";

/// Names of what a published model has beside weights and config.json, in order: tokenizer, chat
/// template, settings of generation, licence.
std::vector<std::string> side_files(const std::filesystem::path& folder);

/// The text of a file. @throws Error (exit 2) if it cannot be read
std::string read_text(const std::filesystem::path& path);
/// @throws Error (exit 4) if it cannot be written whole
void write_text(const std::filesystem::path& path, const std::string& text);

}  // namespace stowage::drivers
