#include "inputs/data/json_line.hpp"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "ctest/inputs/support.hpp"

namespace stowage::inputs {
namespace {

using testing::expect_parts;

std::string why(std::string_view line) {
  std::string text;
  EXPECT_TRUE(parse_json_line(line, &text).is_discarded()) << line;
  return text;
}

TEST(json_line, reads_what_pythons_json_writes) {
  const auto value = parse_json_line(
      R"({"text":"NaN \" -Infinity \\","a":NaN,"b":[Infinity,-Infinity],"c":{"d": NaN }})");
  ASSERT_TRUE(value.is_object());
  EXPECT_EQ(value["text"], "NaN \" -Infinity \\");
  EXPECT_TRUE(value["a"].is_object());  // neither a text nor a token
  EXPECT_TRUE(value["b"][1].is_object());
  EXPECT_EQ(parse_json_line("\xef\xbb\xbf{\"text\":\"a\"}\r")["text"], "a");
}

TEST(json_line, says_why_and_where) {
  expect_parts(why("{\"text\":\"caf\xe9\"}"), {"column 14", "ill-formed UTF-8"});
  expect_parts(why("{\"a\":NaN,\"text\":\"caf\xe9\"}"), {"column 22", "ill-formed UTF-8"});
  expect_parts(why(R"({"text":"\ud83d"})"), {"column 16", "surrogate"});
  expect_parts(why(R"({"text":"a)"), {"column 11", "missing closing quote"});
  expect_parts(why(R"({"text":NaNs})"), {"column 12"});
  expect_parts(why(R"({"text":"a"} {"text":"b"})"), {"column 14", "expected end of input"});
  EXPECT_EQ(why(R"({"n":1e400})"), "number overflow parsing '1e400'");
  for (const char* line : {"", "\\", "\"\\", "nan", "inf", "{\"a\":Infinit", "\x1b[2J"}) why(line);
}

TEST(json_line, deep_nesting_needs_no_stack) {
  const std::string deep = std::string(300000, '[') + std::string(300000, ']');
  EXPECT_TRUE(parse_json_line(deep).is_array());
  EXPECT_TRUE(parse_json_line(std::string(300000, '[')).is_discarded());
}

}  // namespace
}  // namespace stowage::inputs
