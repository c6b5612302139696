#include "inputs/deck/xxh64.hpp"

#include <gtest/gtest.h>

namespace stowage::inputs {
namespace {

std::string xxh64_hex(std::string_view text) {
  Xxh64 hash;
  hash.update(std::as_bytes(std::span(text)));
  return hash.hex();
}

TEST(xxh64, known_answers) {
  EXPECT_EQ(xxh64_hex(""), "ef46db3751d8e999");
  EXPECT_EQ(xxh64_hex("a"), "d24ec4f1a98c6e5b");
  EXPECT_EQ(xxh64_hex("abc"), "44bc2cf5ad770999");
  EXPECT_EQ(xxh64_hex("xxhash"), "32dd38952c4bc720");
  EXPECT_EQ(xxh64_hex("Nobody inspects the spammish repetition"), "fbcea83c8a378bf1");
}

TEST(xxh64, pieces_give_the_same_as_the_whole) {
  std::string text;
  for (int i = 0; i < 500; ++i) text += static_cast<char>(i * 7);
  for (std::size_t size = 0; size <= text.size(); size += 3)
    for (const std::size_t step : {1, 7, 31, 32, 33, 100}) {
      const std::string_view whole = std::string_view(text).substr(0, size);
      Xxh64 hash;
      for (std::size_t at = 0; at < size; at += step)
        hash.update(std::as_bytes(std::span(whole.substr(at, step))));
      ASSERT_EQ(hash.hex(), xxh64_hex(whole)) << size << " by " << step;
    }
}

TEST(xxh64, every_bit_counts) {
  std::string text(100, '\0');
  const std::string before = xxh64_hex(text);
  for (std::size_t bit = 0; bit < 8 * text.size(); ++bit) {
    text[bit / 8] = static_cast<char>(text[bit / 8] ^ (1 << bit % 8));
    EXPECT_NE(xxh64_hex(text), before) << bit;
    text[bit / 8] = static_cast<char>(text[bit / 8] ^ (1 << bit % 8));
  }
}

}  // namespace
}  // namespace stowage::inputs
