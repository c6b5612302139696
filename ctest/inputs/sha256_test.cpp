#include "inputs/deck/sha256.hpp"

#include <gtest/gtest.h>

namespace stowage::inputs {
namespace {

// FIPS 180-4's examples, and one of a million bytes.
TEST(sha256, known_answers) {
  EXPECT_EQ(sha256_hex(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(sha256_hex("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(sha256_hex("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq"),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  EXPECT_EQ(sha256_hex(std::string(1000000, 'a')),
            "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

// The padding takes one block or two around 55, 56 and 64 bytes; all lengths must differ.
TEST(sha256, lengths_around_a_block) {
  std::string last;
  for (std::size_t length = 50; length <= 130; ++length) {
    const std::string digest = sha256_hex(std::string(length, 'x'));
    EXPECT_EQ(digest.size(), 64U);
    EXPECT_NE(digest, last) << length;
    last = digest;
  }
  EXPECT_EQ(sha256_hex(std::string(64, 'a')),
            "ffe054fe7ae0cb6dc65c3af9b61d5209f439851db43d0ba5997337df154668eb");
}

}  // namespace
}  // namespace stowage::inputs
