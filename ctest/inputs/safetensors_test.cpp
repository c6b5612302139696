// The safetensors format: what a writer made is read back; every damage is an error with a name.
#include <gtest/gtest.h>

#include <random>

#include "ctest/support/mutate.hpp"
#include "ctest/support/seed.hpp"
#include "execution/error.hpp"
#include "inputs/huggingface/json_limits.hpp"
#include "inputs/huggingface/model_folder.hpp"
#include "support.hpp"

namespace stowage::inputs::huggingface {
namespace {

using testing::expect_parts;
using testing::TemporaryFolder;
using testing::usage_error;
using Words = std::initializer_list<std::string_view>;

/// A file of a header text and data bytes.
std::string file_of(const std::string& header, std::size_t data) {
  std::string bytes(8, '\0');
  for (std::size_t i = 0; i < 8; ++i) bytes[i] = static_cast<char>(header.size() >> (8 * i));
  return bytes + header + std::string(data, 'd');
}

std::string entry(const std::string& name, const std::string& dtype, const std::string& shape,
                  const std::string& offsets) {
  return "\"" + name + "\":{\"dtype\":\"" + dtype + "\",\"shape\":" + shape +
         ",\"data_offsets\":" + offsets + "}";
}

Header parse(const std::string& file) {
  return parse_header(std::as_bytes(std::span(file)), static_cast<std::int64_t>(file.size()), "f");
}

void refuse(const std::string& file, Words words) {
  const std::string said = usage_error([&] { (void)parse(file); });
  EXPECT_TRUE(said.starts_with("f: ")) << said;
  expect_parts(said, words);
}

void refuse_folder(const TemporaryFolder& folder, Words words) {
  expect_parts(usage_error([&] { ModelFolder(folder / ""); }), words);
}

TEST(safetensors, header_is_read) {
  const std::string header =
      "{" + entry("b", "F32", "[2,3]", "[4,28]") + "," + entry("a", "BF16", "[2]", "[0,4]") + "," +
      entry("empty", "F32", "[0,7]", "[28,28]") + "," + entry("scalar", "I64", "[]", "[28,36]") +
      ",\"__metadata__\":{\"format\":\"pt\"}}   ";
  const Header read = parse(file_of(header, 36));
  ASSERT_EQ(read.entries.size(), 4U);
  EXPECT_EQ(read.entries[0].name, "a");
  ASSERT_NE(read.find("b"), nullptr);
  EXPECT_EQ(read.find("b")->shape, (std::vector<std::int64_t>{2, 3}));
  EXPECT_EQ(read.find("b")->bytes(), 24);
  EXPECT_EQ(read.find("scalar")->bytes(), 8);
  EXPECT_EQ(read.find("c"), nullptr);
  EXPECT_EQ(read.metadata.at("format"), "pt");
  EXPECT_EQ(read.data_offset, static_cast<std::int64_t>(8 + header.size()));
}

TEST(safetensors, damaged_headers_are_named) {
  const std::string a = entry("a", "F32", "[2]", "[0,8]");
  refuse("1234567", {"f", "truncated"});
  refuse(file_of("{" + a + "}", 8).substr(0, 20), {"truncated"});
  refuse(file_of("{" + a + "}", 7), {"truncated", "'a'"});
  refuse(file_of("{" + a + "}", 9), {"1 bytes follow"});
  refuse(file_of("[" + a + "]", 8), {"begin with {"});
  refuse(file_of("{" + a, 8), {"no JSON"});
  refuse(file_of("{\"\xff\":1}", 0), {"no JSON"});
  refuse(file_of("{" + a + "," + entry("a", "F32", "[2]", "[8,16]") + "}", 16), {"'a'", "twice"});
  refuse(file_of("{" + a + "," + entry("b", "F32", "[2]", "[4,12]") + "}", 12), {"'b'", "overlap"});
  refuse(file_of("{" + a + "," + entry("b", "F32", "[2]", "[12,20]") + "}", 20), {"'b'", "hole"});
  refuse(file_of("{" + entry("a", "F32", "[3]", "[0,8]") + "}", 8), {"'a'", "12"});
  refuse(file_of("{" + entry("a", "F32", "[2]", "[8,0]") + "}", 8), {"'a'", "[8, 0)"});
  refuse(file_of("{" + entry("a", "F31", "[2]", "[0,8]") + "}", 8),
         {"'a'", "F31", "not one of the format"});
  refuse(file_of("{" + entry("a", "F4", "[3]", "[0,2]") + "}", 2), {"'a'"});
  refuse(file_of("{" + entry("a", "F32", "[-2]", "[0,8]") + "}", 8), {"'a'", "-2"});
  refuse(file_of("{" + entry("a", "F32", "[1.5]", "[0,8]") + "}", 8), {"'a'", "1.5"});
  refuse(file_of("{" + entry("a", "F32", "[4611686018427387904,4]", "[0,8]") + "}", 8), {"'a'"});
  refuse(file_of("{" + entry("a", "F32", "2", "[0,8]") + "}", 8), {"'a'", "list"});
  refuse(file_of("{" + entry("a", "F32", "[2]", "[0,8,9]") + "}", 8), {"'a'", "two"});
  refuse(file_of("{\"a\":{\"dtype\":\"F32\",\"shape\":[2]}}", 8), {"'a'", "data_offsets"});
  refuse(file_of("{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8],\"x\":1}}", 8),
         {"'a'", "keys beside"});
  refuse(file_of("{\"a\":[1]}", 8), {"'a'", "object"});
  refuse(file_of("{\"__metadata__\":{\"n\":1}}", 0), {"__metadata__", "'n'"});
}

TEST(safetensors, headers_at_their_limits) {
  const auto length_of = [](std::uint64_t length, std::int64_t file_bytes) {
    std::string first(8, '\0');
    for (std::size_t i = 0; i < 8; ++i) first[i] = static_cast<char>(length >> (8 * i));
    return header_bytes(std::as_bytes(std::span(first)), file_bytes, "f");
  };
  constexpr std::int64_t kLarge = std::int64_t{1} << 40;
  EXPECT_EQ(length_of(kMaxHeaderBytes, kLarge), kMaxHeaderBytes);
  EXPECT_EQ(length_of(12, 20), 12U);
  for (const std::uint64_t length :
       {kMaxHeaderBytes + 1, std::uint64_t{1} << 63, ~std::uint64_t{0}})
    expect_parts(usage_error([&] { (void)length_of(length, kLarge); }),
                 {"header of", std::to_string(length), "100000000"});
  expect_parts(usage_error([&] { (void)length_of(13, 20); }), {"truncated", "13", "20"});
  const auto named = [](std::size_t bytes) {
    return file_of("{" + entry(std::string(bytes, 'n'), "F32", "[2]", "[0,8]") + "}", 8);
  };
  EXPECT_EQ(parse(named(detail::kMaxNameBytes)).entries.size(), 1U);
  refuse(named(detail::kMaxNameBytes + 1), {"nnn ...", "1025 bytes", "allowed: 1024"});
  const auto nested = [](int levels) {
    return file_of(
        "{\"a\":{\"dtype\":" + std::string(levels, '[') + std::string(levels, ']') + "}}", 0);
  };
  refuse(nested(detail::kMaxJsonDepth - 2), {"'a'", "has no shape"});
  refuse(nested(detail::kMaxJsonDepth - 1), {"f", "64 deep"});
  refuse(nested(1000000), {"f", "64 deep"});
  const auto shaped = [](int extents) {
    std::string shape = "[1";
    for (int i = 1; i < extents; ++i) shape += ",1";
    return file_of("{" + entry("a", "F32", shape + "]", "[0,4]") + "}", 4);
  };
  EXPECT_EQ(parse(shaped(100000)).entries[0].shape.size(), 100000U);
  refuse(shaped(1000000), {"'a'", "more than 1000000 values"});
  refuse(file_of("{\"a\":{\"dtype\":[{}]}}", 0), {"'a'", "an object in an object"});
}

TEST(safetensors, names_with_control_characters_are_refused) {
  refuse(file_of("{" + entry("a\\u001b[2J", "F32", "[2]", "[0,8]") + "}", 8),
         {"'a\\x1b[2J'", "control characters"});
  refuse(file_of("{" + entry("a\\nb", "F32", "[2]", "[0,8]") + "}", 8), {"'a\\x0ab'"});
  EXPECT_EQ(parse(file_of("{" + entry("größe", "F32", "[2]", "[0,8]") + "}", 8)).entries.size(),
            1U);
  const TemporaryFolder folder;
  folder.write(kIndexFile, "{\"weight_map\":{\"a\\u001b\":\"one\"}}");
  refuse_folder(folder, {"'a\\x1b'", "control characters"});
  folder.write(kIndexFile, "{\"weight_map\":{\"a\":\"\\u001b\"}}");
  refuse_folder(folder, {"'\\x1b'", "control characters"});
  std::string deep(1000000, '[');
  folder.write(kIndexFile, "{\"weight_map\":" + deep);
  refuse_folder(folder, {kIndexFile, "64 deep"});
}

// A reader of other people's files must refuse or read, never crash: any byte may be anything.
TEST(safetensors, random_damage_is_refused_or_read) {
  std::mt19937_64 random(ctest::seed());
  const std::string whole =
      file_of("{\"__metadata__\":{\"format\":\"pt\"}," + entry("a", "F32", "[2,2]", "[0,16]") +
                  "," + entry("b", "BF16", "[3]", "[16,22]") + "}",
              22);
  int refused = 0;
  const int rounds = 40 * ctest::fuzz_rounds();
  for (int i = 0; i < rounds; ++i) {
    std::string file = whole;
    for (std::uint64_t changes = 1 + random() % 3; changes > 0 && !file.empty(); --changes) {
      const std::size_t at = random() % file.size();
      switch (random() % 4) {
        case 0:
          file[at] = static_cast<char>(random());
          break;
        case 1:
          file.erase(at, 1 + random() % 9);
          break;
        case 2:
          file.insert(at, 1, "0123456789[]{},:\""[random() % 17]);
          break;
        default:
          file.resize(at + 1);
      }
    }
    try {
      const Header header = parse(file);
      std::int64_t bytes = 0;
      for (const Entry& held : header.entries) bytes += held.bytes();
      ASSERT_EQ(header.data_offset + bytes, static_cast<std::int64_t>(file.size()));
    } catch (const execution::Error& error) {
      ASSERT_EQ(error.exit(), execution::Exit::usage) << error.what();
      ++refused;
    }
  }
  EXPECT_GT(refused, rounds / 2);
}

TEST(safetensors, written_file_is_read_back) {
  const TemporaryFolder folder;
  const std::string path = folder / "x.safetensors";
  std::vector<float> a = {1, 2, 3, 4, 5, 6};
  std::vector<std::uint16_t> b = {7, 8, 9};
  SafetensorsWriter writer(path, {{"a", "F32", {2, 3}}, {"b", "BF16", {3}}}, {{"format", "pt"}});
  writer.write(1, 0, std::as_bytes(std::span(b)));
  writer.write(0, 8, std::as_bytes(std::span(a)).subspan(8));
  EXPECT_THROW(writer.finish(), execution::Error);
  writer.write(0, 0, std::as_bytes(std::span(a)).first(8));
  writer.finish();
  const SafetensorsFile file(path);
  EXPECT_EQ(file.header().data_offset % 8, 0);
  EXPECT_EQ(file.header().metadata.at("format"), "pt");
  std::vector<float> read(3);
  file.read(*file.header().find("a"), 12, std::as_writable_bytes(std::span(read)));
  EXPECT_EQ(read, (std::vector<float>{4, 5, 6}));
  EXPECT_EQ(dtype_of(*file.header().find("b"), path), execution::Dtype::bf16);
}

void write_tensor(const std::string& path, const std::string& name) {
  SafetensorsWriter writer(path, {{name, "F32", {1}}}, {{"format", "pt"}});
  writer.write(0, 0, std::vector<std::byte>(4));
  writer.finish();
}

TEST(model_folder, shards_and_index_must_agree) {
  const TemporaryFolder folder;
  refuse_folder(folder, {"neither"});
  write_tensor(folder / "one", "a");
  write_tensor(folder / "two", "b");
  const auto index = [&](const std::string& map) {
    folder.write(kIndexFile, "{\"metadata\":{},\"weight_map\":{" + map + "}}");
  };
  index("\"a\":\"one\",\"b\":\"two\"");
  const ModelFolder model(folder / "");
  EXPECT_EQ(model.names(), (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(model.bytes(), 8);
  EXPECT_EQ(model.find("c"), nullptr);
  EXPECT_EQ(model.file_of("b").path(), folder / "two");
  index("\"a\":\"one\",\"b\":\"one\"");
  refuse_folder(folder, {"'b'", "one"});
  index("\"a\":\"one\",\"b\":\"three\"");
  refuse_folder(folder, {"three"});
  index("\"a\":\"../one\"");
  refuse_folder(folder, {"../one"});
  write_tensor(folder / "two", "a");
  index("\"a\":\"one\"");
  EXPECT_NO_THROW(ModelFolder(folder / ""));
  folder.write(kIndexFile, "{");
  refuse_folder(folder, {kIndexFile, "no JSON"});
  write_tensor(folder / kSingleFile, "a");
  refuse_folder(folder, {"both"});
}

}  // namespace
}  // namespace stowage::inputs::huggingface
