#include "inputs/data/file_form.hpp"

#include <gtest/gtest.h>

#include "ctest/inputs/support.hpp"
#include "inputs/data/token_source.hpp"

namespace stowage::inputs {
namespace {

using testing::expect_parts;
using testing::TemporaryFolder;
using testing::usage_error;

std::string bytes(std::string_view text) { return std::string(text); }

/// The message that opening such a file ends with.
std::string refusal(const std::string& contents, SourceKind kind = SourceKind::automatic,
                    const char* name = "corpus") {
  const TemporaryFolder folder;
  const std::string path = folder.write(name, contents);
  return usage_error([&] { open_source({.kind = kind, .path = path}); });
}

/// True if a file is read as text, a token a byte.
bool is_text(const std::string& contents, SourceKind kind = SourceKind::automatic) {
  const TemporaryFolder folder;
  const std::string path = folder.write("corpus", contents);
  return open_source({.kind = kind, .path = path})->tokens() == std::ssize(contents);
}

TEST(file_form, binary_formats_are_refused_by_name) {
  using namespace std::string_literals;
  const std::string rest = "\n some text behind it \n";
  const std::string length("\x40\0\0\0\0\0\0\0", 8);
  const std::pair<std::string, const char*> files[] = {
      {"\x1f\x8b\x08", "gzip"},
      {"\x28\xb5\x2f\xfd", "zstd"},
      {"\xfd"s + "7zXZ\0"s, "xz"},
      {"BZh91AY&SY", "bzip2"},
      {"\x04\x22\x4d\x18", "lz4"},
      {"PK\x03\x04", "zip"},
      {"PAR1", "Parquet"},
      {"\x1f\x9d\x90", "compress (.Z)"},
      {"%PDF-1.7", "PDF"},
      {"ARROW1\0\0"s, "Arrow"},
      {"\xff\xff\xff\xff\x10", "Arrow"},
      {"\x93NUMPY\x01", "npy"},
      {"\x89HDF\r\n\x1a\n", "HDF5"},
      {length + "{\"a\":{\"dtype\":", "safetensors"}};
  for (const auto& [magic, name] : files)
    for (const SourceKind kind : {SourceKind::automatic, SourceKind::text})
      expect_parts(refusal(magic + rest, kind), {"corpus", name, "stowage_data prepare"});
  expect_parts(refusal("\x1f\x8b\x08"),
               {"gzip -dc '", "corpus' | stowage_data prepare - --out PREFIX"});
}

TEST(file_form, a_cut_off_file_is_no_overrun) {
  for (const char* text : {"\x1f", "BZh", "BZh9", "PK", "\x89HDF", "{", "PAR"})
    EXPECT_EQ(foreign_form(text), nullptr) << text;
}

TEST(file_form, json_lines_are_refused_unless_they_are_asked_for_as_text) {
  const std::string lines = "{\"text\": \"a\"}\n{\"text\": \"b\"}\n";
  for (const std::string& text :
       {lines, "\xef\xbb\xbf" + lines, "\r\n\n" + lines, bytes("  {\"a\": [1]}"),
        bytes("{\"text\": \"a\", \"score\": NaN, \"p\": -Infinity}\n")}) {
    expect_parts(refusal(text),
                 {"corpus", "JSON lines", "stowage_data prepare", "data.source = \"text\""});
    EXPECT_TRUE(is_text(text, SourceKind::text)) << text;
  }
  expect_parts(refusal("{\"text\": \"cut o", SourceKind::automatic, "a.jsonl"), {"JSON lines"});
}

TEST(file_form, text_in_braces_is_text) {
  for (const char* text : {"{a set} of words\n", "{\n  \"text\": \"JSON over several lines\"\n}\n",
                           "{\n", "{}\n", "{", "{ \"quoted\" words }\n", "[1] a note\n",
                           "# {\"text\": 1}\n", "BZh, a word\n", "BZx91AY&SY\n", "PK stands for\n"})
    EXPECT_TRUE(is_text(text)) << text;
}

TEST(file_form, a_zero_byte_is_no_text_unless_it_is_asked_for) {
  const std::string ids(std::string_view("\x61\0\x62\0", 4));
  expect_parts(refusal(ids), {"corpus", "a zero at byte offset 1", "data.source = \"text\""});
  EXPECT_TRUE(is_text(ids, SourceKind::text));
}

}  // namespace
}  // namespace stowage::inputs
