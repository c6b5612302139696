#pragma once

#include <filesystem>
#include <span>
#include <string>

#include "results/file_kind.hpp"

/// What a program may write where: the one rule of all drivers. A path is free if nothing is there,
/// if what is there is empty, or if it is an older file of ours of the same kind, which is then
/// kept beside the new one. Everything else is somebody's, and is refused before work begins.
namespace stowage::results {

/// A file of a run, and what it is in messages: "run.output", "--trace", "the deck".
struct NamedPath {
  std::string what;
  std::filesystem::path path;
};

/// The unfinished state of an output.
std::filesystem::path part_of(const std::filesystem::path& path);

/// Throws Error(Exit::usage) if two outputs are one file, if an output is an input, or if one is
/// the other's `.part`, under whatever spelling: ./x, a symbolic or a hard link.
void require_apart(std::span<const NamedPath> outputs, std::span<const NamedPath> inputs);

/// Throws Error(Exit::usage) if `path` is a folder, a device, a FIFO, or holds what is not an older
/// file of ours of this kind.
void require_free(const std::filesystem::path& path, FileKind kind);

/// Renames an older file out of the way: tiny.h5 to tiny.older_1.h5, or the next number that is
/// free. Returns the new name; empty if there was nothing to keep.
std::filesystem::path keep_older(const std::filesystem::path& path);

}  // namespace stowage::results
