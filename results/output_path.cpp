#include "results/output_path.hpp"

#include "execution/error.hpp"

namespace stowage::results {
namespace {

namespace fs = std::filesystem;

fs::path plain(const fs::path& path) {
  std::error_code error;
  fs::path resolved = fs::weakly_canonical(fs::absolute(path), error);
  return error ? path.lexically_normal() : resolved;
}

bool same_file(const fs::path& a, const fs::path& b) {
  std::error_code none;  // equivalent() fails where one of them does not exist
  return plain(a) == plain(b) || fs::equivalent(a, b, none);
}

/// An output takes its own name and that of its unfinished state.
bool takes(const NamedPath& output, const fs::path& other) {
  return same_file(output.path, other) || same_file(part_of(output.path), other);
}

}  // namespace

fs::path part_of(const fs::path& path) { return path.string() + ".part"; }

void require_apart(std::span<const NamedPath> outputs, std::span<const NamedPath> inputs) {
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    const NamedPath& output = outputs[i];
    for (const NamedPath& input : inputs)
      if (takes(output, input.path))
        execution::throw_usage("{} {}: would replace {} {}; name another file", output.what,
                               output.path.string(), input.what, input.path.string());
    for (const NamedPath& other : outputs.subspan(i + 1))
      if (takes(output, other.path) || takes(other, output.path))
        execution::throw_usage("{} {} and {} {}: two outputs need two files", output.what,
                               output.path.string(), other.what, other.path.string());
  }
}

void require_free(const fs::path& path, FileKind kind) {
  const auto refuse = [&](std::string_view why) {
    execution::throw_usage("{} cannot be written to {}: {}", name(kind), path.string(), why);
  };
  if (!path.has_filename()) refuse("this names a folder, not a file");
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (!fs::exists(status)) return;  // what hinders the writing itself is found by trying it
  if (fs::is_directory(status)) refuse("it is a folder");
  if (!fs::is_regular_file(status)) refuse("it is a device, a FIFO or a socket, not a file");
  if (fs::file_size(path, error) == 0 && !error) return;
  if (kind_of(path) != kind)
    refuse("it exists and is no older file of this kind; move it away, or name another file");
}

fs::path keep_older(const fs::path& path) {
  std::error_code error;
  if (!fs::exists(fs::symlink_status(path, error)) || fs::is_empty(path, error)) return {};
  for (int number = 1;; ++number) {
    fs::path older = path;
    older.replace_filename(
        fmt::format("{}.older_{}{}", path.stem().string(), number, path.extension().string()));
    if (fs::exists(fs::symlink_status(older, error))) continue;
    fs::rename(path, older, error);
    if (!error) return older;
    throw execution::Error(
        execution::Exit::runtime,
        fmt::format("{} cannot be kept as {}: {}", path.string(), older.string(), error.message()));
  }
}

}  // namespace stowage::results
