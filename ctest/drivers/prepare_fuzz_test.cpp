// JSON lines among random damage: a usage error that leaves no file, or files that can be read.
#include <gtest/gtest.h>

#include <vector>

#include "ctest/inputs/support.hpp"
#include "ctest/support/mutate.hpp"
#include "ctest/support/seed.hpp"
#include "drivers/data/prepare.hpp"
#include "inputs/data/token_source.hpp"

namespace stowage::drivers {
namespace {

using inputs::testing::TemporaryFolder;

const std::vector<std::string> kTexts = {R"({"text":"In the beginning"})", R"({"text":""})",
                                         R"({"text":"é ☃\n","score":NaN,"n":[-Infinity]})",
                                         "\xef\xbb\xbf{\"text\":\"mark\"}\r"};
const std::vector<std::string> kPairs = {R"({"prompt":"a","response":"bc"})",
                                         R"({"response":"","prompt":"","x":{"text":1}})"};
const std::vector<std::string> kIds = {R"({"text":[1,2,255]})", R"({"text":[],"y":[[[0]]]})"};

/// What was made of a file; nothing if it was refused.
std::string prepared(const PrepareOptions& options, const std::string& lines) {
  try {
    return prepare(options);
  } catch (const execution::Error& error) {
    EXPECT_EQ(error.exit(), execution::Exit::usage) << error.what() << "\n" << lines;
  } catch (const std::exception& error) {
    ADD_FAILURE() << "not one of our errors: " << error.what() << "\n" << lines;
  }
  return {};
}

TEST(prepare, damaged_lines_are_refused_or_read) {
  std::mt19937_64 random(ctest::seed());
  int read = 0, refused = 0;
  for (int round = 0; round < ctest::fuzz_rounds() / 2; ++round) {
    const TemporaryFolder folder;
    const auto& corpus = round % 3 == 0 ? kIds : round % 3 == 1 ? kPairs : kTexts;
    std::string lines;
    for (std::size_t i = 0; i <= random() % 4; ++i)
      lines += corpus[random() % corpus.size()] + "\n";
    lines = ctest::mutated(lines, random);
    const PrepareOptions options{.inputs = {folder.write("in.jsonl", lines)},
                                 .prefix = folder / "out",
                                 .tokenizer = round % 3 == 0 ? "ids" : "bytes"};
    if (prepared(options, lines).empty()) {
      ++refused;
      for (const char* suffix : {".bin", ".idx", ".mask", ".bin.part", ".idx.part", ".mask.part"})
        EXPECT_FALSE(std::filesystem::exists(options.prefix + suffix)) << suffix << "\n" << lines;
      continue;
    }
    ++read;
    const auto source = inputs::open_source({.path = options.prefix});
    std::vector<std::int32_t> tokens(static_cast<std::size_t>(source->tokens()));
    EXPECT_NO_THROW(source->read(0, tokens)) << lines;
    EXPECT_GT(source->documents(), 0) << lines;
  }
  EXPECT_GT(read, 0);  // damage that is never found, or always, was no test
  EXPECT_GT(refused, 0);
}

}  // namespace
}  // namespace stowage::drivers
