#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace stowage::run {

/// The folder beside checkpoints that keeps what a published model has beside its weights.
inline constexpr const char* kSideFolder = "huggingface";

/// Names of what a published model has beside weights and config.json, in order: tokenizer, chat
/// template, settings of generation, licence.
/// @throws Error (exit 2) for one that leads out of the folder, is no plain file, or has more than
/// 1 GiB
std::vector<std::string> side_files(const std::filesystem::path& folder);

/// Copies a plain file's bytes, some at a time. @throws Error (exit 2) if it cannot be read, (exit
/// 4) if the copy cannot be written whole
void copy_bytes(const std::filesystem::path& from, const std::filesystem::path& to);
/// @throws Error (exit 4) if it cannot be written whole
void write_text(const std::filesystem::path& path, const std::string& text);

}  // namespace stowage::run
