#include "inputs/huggingface/folder_file.hpp"

#include <filesystem>
#include <span>
#include <system_error>

#include "execution/error.hpp"
#include "inputs/huggingface/safetensors_file.hpp"

namespace stowage::inputs::huggingface {

namespace fs = std::filesystem;
using execution::throw_usage;

namespace {

bool is_below(const fs::path& path, const fs::path& folder) {
  const fs::path relative = path.lexically_relative(folder);
  return !relative.empty() && relative != "." && *relative.begin() != "..";
}

}  // namespace

std::string path_in(const std::string& folder, const std::string& name) {
  const fs::path path = fs::path(folder) / name;
  std::error_code error;
  if (!fs::is_symlink(fs::symlink_status(path, error))) return path.string();
  const fs::path target = fs::canonical(path, error);
  if (error) throw_usage("{} is a link that leads to no file: {}", path.string(), error.message());
  const fs::path home = fs::canonical(folder, error);
  const bool in_cache = home.parent_path().filename() == "snapshots" &&
                        is_below(target, home.parent_path().parent_path() / "blobs");
  if (!error && (is_below(target, home) || in_cache)) return path.string();
  throw_usage(
      "{} is a link to {}, outside of its folder; allowed: links to files of the folder, and of "
      "the Hugging Face cache that it is in; copy the file if it belongs to the model",
      path.string(), target.string());
}

std::string read_text(const std::string& path, std::int64_t most_bytes) {
  const Descriptor file(path, Descriptor::Mode::read);
  const std::int64_t bytes = file.size();
  if (bytes > most_bytes) throw_usage("{} has {} bytes; allowed: {}", path, bytes, most_bytes);
  std::string text(static_cast<std::size_t>(bytes), '\0');
  file.read(0, std::as_writable_bytes(std::span(text)));
  return text;
}

}  // namespace stowage::inputs::huggingface
