// What others wrote, in messages: no byte of it reaches a terminal as a command.
#include "execution/printable.hpp"

#include <gtest/gtest.h>

namespace stowage::execution {
namespace {

TEST(printable, control_bytes_are_escaped) {
  EXPECT_EQ(printable("a\x1b[2Jb\r\n\t\x7f"), "a\\x1b[2Jb\\x0d\\x0a\\x09\\x7f");
  EXPECT_EQ(printable(std::string("a\0b", 3)), "a\\x00b");
  EXPECT_EQ(printable("\x1f \x7e"), "\\x1f \x7e");  // the edges: a space and ~ are text
  EXPECT_EQ(printable_lines("a\n\tb\x1b\r"), "a\n\tb\\x1b\\x0d");
}

TEST(printable, text_stays_and_broken_text_is_escaped) {
  const std::string text = "größe 模型 \xf0\x9f\x9a\xa2 \xc2\xa0";
  EXPECT_EQ(printable(text), text);
  EXPECT_EQ(printable("\xc2\x9b"), "\\xc2\\x9b");  // U+009B begins commands of terminals
  EXPECT_EQ(printable("\x9b"
                      "1"),
            "\\x9b"
            "1");
  EXPECT_EQ(printable("\xe6\xa8"), "\\xe6\\xa8");  // cut off
  EXPECT_EQ(printable("\xc0\xaf\xff"), "\\xc0\\xaf\\xff");
  EXPECT_EQ(printable("\xc3("), "\\xc3(");
  EXPECT_EQ(printable("\xe0\x80\x9b"), "\\xe0\\x80\\x9b");  // longer spellings of ESC
  EXPECT_EQ(printable("\xf0\x80\x80\x9b"), "\\xf0\\x80\\x80\\x9b");
}

}  // namespace
}  // namespace stowage::execution
