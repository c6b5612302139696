#include <gtest/gtest.h>

#include "ctest/inputs/support.hpp"
#include "ctest/support/seed.hpp"
#include "inputs/data/token_source.hpp"

namespace stowage::inputs {
namespace {

using testing::expect_parts;
using testing::TemporaryFolder;
using testing::usage_error;

struct Shard {
  std::int32_t magic = 20240520, version = 1, count = -1;  // -1: as many as there are
  std::vector<std::uint32_t> tokens;

  std::string bytes() const {
    std::string all;
    for (const std::int32_t word : {magic, version}) testing::append(all, word);
    testing::append(all, count < 0 ? static_cast<std::int32_t>(tokens.size()) : count);
    all.resize(1024, '\0');
    for (const std::uint32_t token : tokens)
      magic == 20240801 ? testing::append(all, token)
                        : testing::append(all, static_cast<std::uint16_t>(token));
    return all;
  }
};

/// Fills the shard with tokens below `start`, which begins four documents, and reads it.
void expect_read(Shard shard, std::int32_t start) {
  const TemporaryFolder folder;
  std::mt19937 random(static_cast<unsigned>(ctest::seed()));
  for (int i = 0; i < 70000; ++i) {
    shard.tokens.push_back(static_cast<std::uint32_t>(random() % static_cast<unsigned>(start)));
  }
  for (const std::size_t at : {0, 5, 66000, 69999})
    shard.tokens[at] = static_cast<std::uint32_t>(start);
  const std::string path = folder.write("shard.bin", shard.bytes());
  const SourceOptions options{.path = path, .vocab_size = start + 48, .document_token = start};
  const auto source = open_source(options);
  ASSERT_EQ(source->tokens(), 70000);
  std::vector<std::int32_t> tokens(69000);
  source->read(1000, tokens);
  for (std::size_t i = 0; i < tokens.size(); ++i)
    ASSERT_EQ(tokens[i], static_cast<std::int32_t>(shard.tokens[1000 + i]));
  EXPECT_EQ(std::vector(source->document_offsets().begin(), source->document_offsets().end()),
            (std::vector<std::int64_t>{0, 5, 66000, 69999, 70000}));
  EXPECT_EQ(source->files(), std::vector<std::string>{path});
  EXPECT_EQ(open_source({.path = path, .vocab_size = start + 48})->documents(), 1);
}

TEST(llmc_source, reads_tokens_and_documents) { expect_read({}, 50256); }

TEST(llmc_source, reads_32_bit_tokens) {
  expect_read({.magic = 20240801, .version = 7, .tokens = {}}, 128000);
}

TEST(llmc_source, bad_files) {
  const TemporaryFolder folder;
  const auto error = [&](const std::string& bytes, std::int64_t vocab_size = 100) {
    const std::string path = folder.write("bad.bin", bytes);
    return usage_error(
        [&] { open_source({.kind = SourceKind::llmc, .path = path, .vocab_size = vocab_size}); });
  };
  const Shard good{.tokens = {1, 2, 3}};
  expect_parts(error(Shard{.magic = 20240519, .tokens = {1}}.bytes()),
               {"bad.bin", "wrong magic 20240519", "offset 0", "20240520 or 20240801"});
  expect_parts(error(Shard{.version = 2, .tokens = {1}}.bytes()), {"version 2", "offset 4"});
  expect_parts(error(Shard{.magic = 20240801, .tokens = {1}}.bytes()),
               {"version 1", "offset 4", "only 7 (uint32 tokens)"});
  expect_parts(
      error(Shard{.magic = 20240801, .version = 7, .count = 4, .tokens = {1, 2, 3}}.bytes()),
      {"truncated", "1036 bytes", "1040"});
  expect_parts(error(Shard{.magic = 20240801, .version = 7, .tokens = {1, 4000000000}}.bytes()),
               {"bad.bin", "token 4000000000 at byte offset 1028", "vocab_size = 100"});
  expect_parts(error(Shard{.count = 0, .tokens = {1}}.bytes()), {"0 tokens", "offset 8"});
  expect_parts(error(Shard{.count = 4, .tokens = {1, 2, 3}}.bytes()),
               {"truncated", "1030 bytes", "1032"});
  expect_parts(error(good.bytes().substr(0, 600)), {"truncated"});
  expect_parts(error(good.bytes().substr(0, 6)), {"truncated"});
  expect_parts(error(good.bytes(), 3),
               {"bad.bin", "token 3", "byte offset 1028", "vocab_size = 3"});
}

}  // namespace
}  // namespace stowage::inputs
