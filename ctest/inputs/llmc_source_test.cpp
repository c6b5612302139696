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
  std::vector<std::uint16_t> tokens;

  std::string bytes() const {
    std::string all;
    for (const std::int32_t word : {magic, version}) testing::append(all, word);
    testing::append(all, count < 0 ? static_cast<std::int32_t>(tokens.size()) : count);
    all.resize(1024, '\0');
    for (const std::uint16_t token : tokens) testing::append(all, token);
    return all;
  }
};

TEST(llmc_source, reads_tokens_and_documents) {
  const TemporaryFolder folder;
  std::mt19937 random(static_cast<unsigned>(ctest::seed()));
  Shard shard;
  for (int i = 0; i < 70000; ++i) {
    shard.tokens.push_back(static_cast<std::uint16_t>(random() % 50256));
  }
  for (const std::size_t start : {0, 5, 66000, 69999}) shard.tokens[start] = 50256;
  const std::string path = folder.write("shard.bin", shard.bytes());
  const SourceOptions options{.path = path, .vocab_size = 50304, .document_token = 50256};
  const auto source = open_source(options);
  ASSERT_EQ(source->tokens(), 70000);
  std::vector<std::int32_t> tokens(69000);
  source->read(1000, tokens);
  for (std::size_t i = 0; i < tokens.size(); ++i) ASSERT_EQ(tokens[i], shard.tokens[1000 + i]);
  EXPECT_EQ(std::vector(source->document_offsets().begin(), source->document_offsets().end()),
            (std::vector<std::int64_t>{0, 5, 66000, 69999, 70000}));
  EXPECT_EQ(source->files(), std::vector<std::string>{path});
  EXPECT_EQ(open_source({.path = path, .vocab_size = 50304})->documents(), 1);
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
               {"bad.bin", "wrong magic 20240519", "offset 0", "20240520"});
  expect_parts(error(Shard{.version = 2, .tokens = {1}}.bytes()), {"version 2", "offset 4"});
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
