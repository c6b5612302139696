// What is common to all sources: how a format is recognised, and files that are none.
#include <gtest/gtest.h>

#include <filesystem>

#include "ctest/inputs/support.hpp"
#include "inputs/data/token_source.hpp"

namespace stowage::inputs {
namespace {

using testing::expect_parts;
using testing::TemporaryFolder;
using testing::usage_error;

constexpr SourceKind kFileKinds[] = {SourceKind::automatic, SourceKind::text, SourceKind::llmc,
                                     SourceKind::megatron};

TEST(source, kinds) {
  EXPECT_EQ(source_kind("auto"), SourceKind::automatic);
  EXPECT_EQ(source_kind("synthetic"), SourceKind::synthetic);
  expect_parts(usage_error([] { source_kind("csv"); }), {"csv"});
}

TEST(source, missing_files) {
  const TemporaryFolder folder;
  for (const SourceKind kind : kFileKinds) {
    const std::string path = folder / "none.txt";
    expect_parts(usage_error([&] { open_source({.kind = kind, .path = path}); }),
                 {"none.txt", "No such file"});
  }
}

TEST(source, folders_and_empty_files) {
  const TemporaryFolder folder;
  std::filesystem::create_directory(folder / "dir");
  const std::string empty = folder.write("empty.txt", "");
  for (const SourceKind kind : {SourceKind::automatic, SourceKind::text, SourceKind::llmc}) {
    expect_parts(usage_error([&] { open_source({.kind = kind, .path = folder / "dir"}); }),
                 {"dir", "not a plain file"});
    expect_parts(usage_error([&] { open_source({.kind = kind, .path = empty}); }),
                 {"empty.txt", "empty"});
  }
}

TEST(source, unknown_magic) {
  const TemporaryFolder folder;
  const std::string path = folder.write("tokens.bin", "neither format, long enough");
  expect_parts(usage_error([&] { open_source({.path = path}); }),
               {path, "wrong magic at byte offset 0", "20240520", "tokens.idx"});
}

}  // namespace
}  // namespace stowage::inputs
