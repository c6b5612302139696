#include <gtest/gtest.h>

#include <filesystem>
#include <set>

#include "ctest/inputs/loader_support.hpp"
#include "inputs/data/digest.hpp"
#include "inputs/data/formats.hpp"
#include "inputs/data/token_source.hpp"

namespace stowage::inputs {
namespace {

using testing::append;
using testing::expect_parts;
using testing::Filling;
using testing::TemporaryFolder;
using testing::usage_error;

std::string bits(std::string_view digits) {
  std::string bytes;
  for (const char digit : digits) bytes += static_cast<char>(digit - '0');
  return bytes;
}

TEST(masked_source, a_mask_lies_beside_its_tokens) {
  EXPECT_EQ(mask_path("a/b.bin"), "a/b.mask");
  EXPECT_EQ(mask_path("a/b.idx"), "a/b.mask");
  EXPECT_EQ(mask_path("a/b"), "a/b.mask");
  EXPECT_EQ(mask_path("book.txt"), "book.txt.mask");
}

TEST(masked_source, only_masked_tokens_are_targets) {
  const TemporaryFolder folder;
  const std::string path = folder.write("qa.txt", "abcdefgh");
  folder.write("qa.txt.mask", bits("00110100"));
  const auto source = open_source({.path = path});
  EXPECT_TRUE(source->masked());
  EXPECT_EQ(source->files(), (std::vector<std::string>{path, path + ".mask"}));
  const LoaderOptions options{.sequences = {.seq_length = 4},
                              .micro_batch_size = 2,
                              .global_batch_size = 2,
                              .shuffle = false};
  const Loader loader(*source, {0, 8}, options);
  const Filling filling(loader, 0, 8, 2);
  EXPECT_EQ(filling.targets, (std::vector<std::int32_t>{-1, 'c', 'd', -1, 'f', -1, -1, -1}));
  EXPECT_EQ(filling.filled.targets, 3);
  EXPECT_EQ(loader.global_targets(), 3);
  folder.write("qa.txt.mask", bits("00110101"));  // one more, which nothing follows
  const auto more = open_source({.path = path});
  const Loader longer(*more, {0, 8}, options);
  EXPECT_EQ(Filling(longer, 0, 8, 2).filled.targets, 4);
  EXPECT_EQ(longer.global_targets(), 4);
}

/// Longer masks are not looked through as a run starts.
TEST(masked_source, a_mask_without_a_target_is_refused_up_to_the_length_that_is_checked) {
  const TemporaryFolder folder;
  const std::string path = folder.write("none.mask", "");
  const auto masked = [&](std::int64_t tokens) {
    std::filesystem::resize_file(path, static_cast<std::uintmax_t>(tokens));
    return detail::with_mask(
        open_source({.kind = SourceKind::synthetic, .synthetic_tokens = tokens}), path);
  };
  const std::int64_t checked = std::int64_t{1} << 26;
  expect_parts(usage_error([&] { (void)masked(checked); }), {path, "no byte of it is 1"});
  EXPECT_TRUE(masked(checked + 1)->masked());
}

TEST(masked_source, another_mask_is_another_stream) {
  const TemporaryFolder folder;
  const std::string path = folder.write("qa.txt", "abcdefgh");
  std::set<std::string> digests{digest(*open_source({.path = path}))};
  for (const char* mask : {"00110100", "00110101", "11111111"}) {
    folder.write("qa.txt.mask", bits(mask));
    digests.insert(digest(*open_source({.path = path})));
  }
  EXPECT_EQ(digests.size(), 4);
}

TEST(masked_source, works_with_every_format) {
  const TemporaryFolder folder;
  std::string shard(1024, '\0');
  for (const auto& [at, value] : {std::pair{0, 20240520}, {4, 1}, {8, 3}})
    std::memcpy(shard.data() + at, &value, sizeof(value));
  std::string index("MMIDIDX\0\0", 9), tokens;
  append(index, std::uint64_t{1});
  append(index, std::uint8_t{8});
  append(index, std::uint64_t{1});
  append(index, std::uint64_t{2});
  append(index, std::int32_t{3});
  append(index, std::int64_t{0});
  append(index, std::int64_t{0});
  append(index, std::int64_t{1});
  for (const std::uint16_t token : std::vector<std::uint16_t>{7, 8, 9}) append(tokens, token);
  folder.write("a.bin", shard + tokens);
  folder.write("a.mask", bits("001"));
  folder.write("b.idx", index);
  folder.write("b.bin", tokens);
  folder.write("b.mask", bits("011"));
  std::vector<std::uint8_t> mask(2);
  const auto llmc = open_source({.path = folder / "a.bin"});
  llmc->read_mask(1, mask);
  EXPECT_EQ(mask, (std::vector<std::uint8_t>{0, 1}));
  EXPECT_FALSE(llmc->knows_documents());
  EXPECT_TRUE(open_source({.path = folder / "a.bin", .document_token = 8})->knows_documents());
  const auto megatron = open_source({.path = folder / "b"});
  megatron->read_mask(0, mask);
  EXPECT_EQ(mask, (std::vector<std::uint8_t>{0, 1}));
  EXPECT_TRUE(megatron->knows_documents());
}

TEST(masked_source, may_be_required_or_left_out) {
  const TemporaryFolder folder;
  const std::string path = folder.write("qa.txt", "abcd");
  EXPECT_FALSE(open_source({.path = path})->masked());
  expect_parts(usage_error([&] { open_source({.path = path, .mask = MaskUse::required}); }),
               {"data.mask", "qa.txt.mask"});
  folder.write("qa.txt.mask", bits("0101"));
  EXPECT_TRUE(open_source({.path = path, .mask = MaskUse::required})->masked());
  const auto plain = open_source({.path = path, .mask = MaskUse::none});
  EXPECT_FALSE(plain->masked());
  std::vector<std::uint8_t> all(4, 9);
  plain->read_mask(0, all);
  EXPECT_EQ(all, (std::vector<std::uint8_t>{1, 1, 1, 1}));
}

TEST(masked_source, bad_masks_are_refused) {
  const TemporaryFolder folder;
  const std::string path = folder.write("qa.txt", "abcd");
  const auto said = [&](std::string_view bytes) {
    folder.write("qa.txt.mask", bytes);
    return usage_error([&] { open_source({.path = path}); });
  };
  expect_parts(said(bits("010")), {"qa.txt.mask", "3 bytes", "4 tokens"});
  expect_parts(said(bits("01011")), {"qa.txt.mask", "5 bytes", "4 tokens"});
  expect_parts(said(bits("0121")), {"qa.txt.mask", "value 2", "byte offset 2"});
  expect_parts(said(bits("0000")), {"qa.txt.mask", "no byte of it is 1"});
}

TEST(masked_source, a_mask_that_shrinks_is_an_error) {
  const TemporaryFolder folder;
  constexpr std::size_t kTokens = 200000;  // several pages, none of which may be missed
  const std::string path = folder.write("qa.txt", std::string(kTokens, 'a'));
  const std::string mask = folder.write("qa.txt.mask", std::string(kTokens, '\1'));
  const auto source = open_source({.path = path});
  std::filesystem::resize_file(mask, 50000);
  std::vector<std::uint8_t> bits(1000);
  source->read_mask(49000, bits);
  for (const std::int64_t first : {49001, 50000, 150000}) {
    try {
      source->read_mask(first, bits);
      ADD_FAILURE() << "no error at " << first;
    } catch (const execution::Error& error) {
      EXPECT_EQ(error.exit(), execution::Exit::runtime);
      expect_parts(error.what(), {"qa.txt.mask", "byte offset", "has become shorter"});
    }
  }
}

}  // namespace
}  // namespace stowage::inputs
