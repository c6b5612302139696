#include <gtest/gtest.h>

#include <filesystem>

#include "ctest/inputs/support.hpp"
#include "inputs/data/token_source.hpp"

namespace stowage::inputs {
namespace {

using testing::expect_parts;
using testing::TemporaryFolder;
using testing::usage_error;

constexpr std::string_view kBook =
    "\nGenesis 1\n\n  1 In the beginning\nGod created\n\nGenesis 2\n\n  1 Thus\n\n1 Samuel 1\n\n"
    "  1 Now there was\n\nSong of Solomon 8\n\n  1 O that\n";

std::vector<std::string> documents(const TokenSource& source) {
  std::vector<std::string> all;
  const auto offsets = source.document_offsets();
  for (std::size_t d = 0; d + 1 < offsets.size(); ++d) {
    std::vector<std::int32_t> tokens(static_cast<std::size_t>(offsets[d + 1] - offsets[d]));
    source.read(offsets[d], tokens);
    all.emplace_back(tokens.begin(), tokens.end());
  }
  return all;
}

TEST(text_source, documents_are_chapters) {
  const TemporaryFolder folder;
  const auto source = open_source({.path = folder.write("book.txt", kBook)});
  EXPECT_EQ(source->tokens(), std::ssize(kBook));
  const std::vector<std::string> all = documents(*source);
  ASSERT_EQ(all.size(), 4U);
  EXPECT_TRUE(all[0].starts_with("\nGenesis 1\n"));
  EXPECT_TRUE(all[1].starts_with("Genesis 2\n"));
  EXPECT_TRUE(all[2].starts_with("1 Samuel 1\n"));
  EXPECT_TRUE(all[3].starts_with("Song of Solomon 8\n"));
  EXPECT_EQ(all[0] + all[1] + all[2] + all[3], kBook);
}

TEST(text_source, headings_stand_alone) {
  const TemporaryFolder folder;
  for (const char* text : {"Genesis 1\nno blank line after\n\nb", "a\n\nGenesis one\n\nb",
                           "a\n\ngenesis 1\n\nb", "a\n\n12\n\nb", "a\n\nGenesis  1\n\nb", "G"}) {
    const auto source = open_source({.path = folder.write("plain.txt", text)});
    EXPECT_EQ(source->documents(), 1) << text;
  }
}

TEST(text_source, holds_out_the_last_documents) {
  const TemporaryFolder folder;
  const auto source = open_source({.path = folder.write("book.txt", kBook)});
  const auto offsets = source->document_offsets();
  const Split quarter = split(*source, 0.25);
  EXPECT_EQ(quarter.train.end, offsets[3]);
  EXPECT_EQ(quarter.held_out.begin, offsets[3]);
  EXPECT_EQ(quarter.held_out.end, source->tokens());
  EXPECT_EQ(split(*source, 0.05).held_out.begin, offsets[3]);  // rounded up to one
  EXPECT_EQ(split(*source, 0).held_out.size(), 0);
  const auto one = open_source({.path = folder.write("one.txt", std::string(100, 'x'))});
  EXPECT_EQ(split(*one, 0.05).held_out.begin, 95);  // by tokens
}

TEST(text_source, bytes_above_the_vocabulary) {
  const TemporaryFolder folder;
  const std::string path = folder.write("latin.txt", "ab\xe9");
  EXPECT_NO_THROW(open_source({.path = path}));
  expect_parts(usage_error([&] { open_source({.path = path, .vocab_size = 128}); }),
               {path, "token 233", "byte offset 2", "model.vocab_size = 128"});
}

// The whole book, where the quick start has extracted it: 1189 chapters, 60 of them held out.
TEST(text_source, king_james_bible) {
  const std::string path = STOWAGE_BOOK;
  if (!std::filesystem::exists(path)) GTEST_SKIP() << "no " << path;
  const auto source = open_source({.path = path});
  EXPECT_EQ(source->documents(), 1189);
  const Split parts = split(*source, 0.05);
  const auto offsets = source->document_offsets();
  EXPECT_EQ(parts.held_out.begin, offsets[1189 - 60]);
}

}  // namespace
}  // namespace stowage::inputs
