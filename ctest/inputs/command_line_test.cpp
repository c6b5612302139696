#include "inputs/deck/command_line.hpp"

#include <gtest/gtest.h>

#include "ctest/inputs/support.hpp"

namespace stowage::inputs {
namespace {

using testing::expect_parts;
using testing::usage_error;

CommandLine parse(std::vector<const char*> words, std::vector<ExtraOption> extra = {},
                  bool needs_deck = true) {
  words.insert(words.begin(), "stowage_test");
  return parse_command_line(static_cast<int>(words.size()), words.data(),
                            {.name = "stowage_test",
                             .summary = "A test.",
                             .version = "1.2",
                             .options = std::move(extra),
                             .needs_deck = needs_deck});
}

TEST(command_line, deck_and_overrides_in_order) {
  const CommandLine line = parse(
      {"a.toml", "run.steps=3", "--quiet", "optim.lr=-1", "data.path=/a=b", "--out", "x y.h5"});
  EXPECT_EQ(line.deck, "a.toml");
  EXPECT_TRUE(line.quiet);
  EXPECT_FALSE(line.dry_run);
  EXPECT_EQ(line.overrides, (std::vector<std::string>{"run.steps=3", "optim.lr=-1",
                                                      "data.path=/a=b", "run.output=\"x y.h5\""}));
  EXPECT_EQ(parse({"--deck", "d/b=c.toml", "--dry-run"}).deck, "d/b=c.toml");
  EXPECT_EQ(parse({"dir/with=sign.toml"}).deck, "dir/with=sign.toml");
  EXPECT_EQ(parse({"--from", "r.h5"}).from, "r.h5");
}

TEST(command_line, texts) {
  const std::string help = parse({"--help"}).print_and_exit;
  expect_parts(help, {"A test.", "--dry-run", "--out FILE", "--help-keys"});
  EXPECT_EQ(help.find("[optim]"), std::string::npos);
  EXPECT_EQ(help.find("TEXT"), std::string::npos);
  expect_parts(parse({"--help-keys"}).print_and_exit, {"[optim]", "lr"});
  EXPECT_EQ(parse({"--version"}).print_and_exit, "stowage_test 1.2\n");
  expect_parts(parse({"--help-key", "optim.lr"}).print_and_exit, {"Largest learning rate"});
}

TEST(command_line, extra_options) {
  std::int64_t ranks = 1;
  bool list = false;
  std::vector<std::string> shapes;
  parse({"--ranks", "8", "--list", "--shape", "B=1", "--shape", "T=2"},
        {{"--ranks", "Ranks to plan for", &ranks},
         {"--list", "List", &list},
         {"--shape", "Sizes", &shapes}},
        false);
  EXPECT_EQ(ranks, 8);
  EXPECT_TRUE(list);
  EXPECT_EQ(shapes, (std::vector<std::string>{"B=1", "T=2"}));
}

TEST(command_line, an_option_that_is_given_again_takes_one_word_each_time) {
  std::vector<std::string> texts;
  const CommandLine line = parse({"--text", "[a,b]", "run.steps=3", "--text", "", "a.toml"},
                                 {{"--text", "Texts", &texts}}, false);
  EXPECT_EQ(texts, (std::vector<std::string>{"[a,b]", ""}));
  EXPECT_EQ(line.overrides, (std::vector<std::string>{"run.steps=3"}));
  EXPECT_EQ(line.deck, "a.toml");
}

TEST(command_line, options_that_ranks_must_share_are_those_that_decide_the_work) {
  bool flag = false;
  std::string path;
  std::int64_t step = 0;
  const std::vector<ExtraOption> extra = {
      {"--graph", "Flag", &flag}, {"--trace", "Path", &path}, {"-n,--step", "Number", &step}};
  EXPECT_EQ(parse({"a.toml"}, extra).options, "none");
  EXPECT_EQ(
      parse({"a.toml", "run.steps=3", "--quiet", "--out", "a.h5", "--json", "b"}, extra).options,
      "none");
  EXPECT_EQ(parse({"a.toml", "--trace", "t.json"}, extra).options, "--trace t.json");
  EXPECT_EQ(parse({"a.toml", "-n", "2", "--graph"}, extra).options, "--graph --step 2");
}

TEST(command_line, what_means_nothing_to_a_driver_is_unknown) {
  const auto parse_without = [](const char* word) {
    const char* words[] = {"stowage_test", "a.toml", word};
    return parse_command_line(
        3, words,
        {.name = "stowage_test", .summary = "A test.", .version = "1.2", .without = {"--quiet"}});
  };
  expect_parts(usage_error([&] { parse_without("--quiet"); }), {"--quiet"});
  EXPECT_TRUE(parse_without("--dry-run").dry_run);
  EXPECT_EQ(parse_without("--help").print_and_exit.find("--quiet"), std::string::npos);
}

TEST(command_line, errors) {
  expect_parts(usage_error([] { parse({}); }), {"no deck"});
  expect_parts(usage_error([] { parse({"a.toml", "b.toml"}); }), {"a.toml", "b.toml"});
  expect_parts(usage_error([] { parse({"a.toml", "--from", "b.h5"}); }), {"one of them"});
  expect_parts(usage_error([] { parse({"a.toml", "--fast"}); }), {"--fast", "--help"});
  expect_parts(usage_error([] {
                 parse({"a.toml", "run.output=b.h5", "--out", "c.h5"});
               }),
               {"--out c.h5", "run.output=b.h5", "one of them"});
  expect_parts(usage_error([] { parse({"--help-key", "run.step"}); }), {"run.steps"});
  expect_parts(usage_error([] { parse({"a.toml", "--json", "\xff"}); }), {"--json is not UTF-8"});
  expect_parts(usage_error([] { parse({"a.toml", "--json=\xc0\x80"}); }), {"--json is not UTF-8"});
  expect_parts(usage_error([] { parse({"\xed\xa0\x80.toml"}); }), {"argument 1 is not UTF-8"});
}

}  // namespace
}  // namespace stowage::inputs
