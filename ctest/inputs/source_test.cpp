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

TEST(source, a_file_that_becomes_shorter_is_an_error) {
  const TemporaryFolder folder;
  const std::string path = folder.write("text.txt", std::string(100000, 'a'));
  const auto source = open_source({.kind = SourceKind::text, .path = path});
  std::vector<std::int32_t> tokens(1000);
  source->read(99000, tokens);
  std::filesystem::resize_file(path, 50000);
  source->read(0, tokens);
  for (const std::int64_t first : {49500, 50000, 99000}) {
    try {
      source->read(first, tokens);
      ADD_FAILURE() << "no error at " << first;
    } catch (const execution::Error& error) {
      EXPECT_EQ(error.exit(), execution::Exit::runtime);
      expect_parts(error.what(), {"text.txt", "byte offset", "has become shorter"});
    }
  }
}

}  // namespace
}  // namespace stowage::inputs
