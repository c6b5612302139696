#include "inputs/deck/section.hpp"

#include <gtest/gtest.h>

#include "inputs/data/run_section.hpp"

namespace stowage::inputs {
namespace {

enum class Colour { red, green };

struct Part {
  double width = 0.5;
};

struct Whole {
  int count = 3;
  bool open = false;
  Colour colour = Colour::green;
  Part part;
  std::vector<std::string> names = {"a"};
};

}  // namespace

template <>
std::vector<Row<Part>> rows<Part>() {
  return {row(&Part::width, {.key = "whole.width"})};
}

template <>
std::vector<Row<Whole>> rows<Whole>() {
  std::vector<Row<Whole>> all = {
      row(&Whole::count, {.key = "whole.count"}),
      opposite(&Whole::open, {.key = "whole.closed"}),
      row(&Whole::colour, {.key = "whole.colour"},
          {{"red", Colour::red}, {"green", Colour::green}}),
  };
  append(all, &Whole::part);
  all.push_back(row(&Whole::names, {.key = "whole.names"}));
  return all;
}

namespace {

TEST(section, initializers_are_defaults) {
  const std::vector<Parameter> rows = declare<Whole>().rows;
  ASSERT_EQ(rows.size(), 5U);
  EXPECT_EQ(rows[0].fallback, Value(std::int64_t{3}));
  EXPECT_EQ(rows[1].fallback, Value(true));
  EXPECT_EQ(rows[2].fallback, Value(std::string("green")));
  EXPECT_EQ(rows[2].allowed, (std::vector<std::string_view>{"red", "green"}));
  EXPECT_EQ(rows[3].fallback, Value(0.5));
  EXPECT_EQ(rows[4].fallback, Value(std::vector<std::string>{"a"}));
}

TEST(section, values_reach_their_members) {
  Whole whole;
  const std::vector<Value> values = {std::int64_t{7}, false, std::string("red"), 2.5,
                                     std::vector<std::string>{"b", "c"}};
  const std::vector<Row<Whole>> all = rows<Whole>();
  for (std::size_t i = 0; i < all.size(); ++i) all[i].set(whole, values[i]);
  EXPECT_EQ(whole.count, 7);
  EXPECT_TRUE(whole.open);
  EXPECT_EQ(whole.colour, Colour::red);
  EXPECT_EQ(whole.part.width, 2.5);
  EXPECT_EQ(whole.names, (std::vector<std::string>{"b", "c"}));
}

TEST(section, members_name_their_keys) {
  EXPECT_EQ(key(&Whole::colour), "whole.colour");
  EXPECT_EQ(key(&Part::width), "whole.width");
}

TEST(section, decks_fill_structs_and_members) {
  const std::vector<std::string> keys = {"data.source=synthetic", "model.pattern=-",
                                         "train.seq_length=32", "train.dtype=fp32"};
  const Deck deck = Deck::parse("", "empty.toml", keys);
  EXPECT_EQ(read<TrainConfig>(deck).microbatch_tokens(), 32);
  EXPECT_EQ(read(deck, &TrainConfig::dtype), execution::Dtype::fp32);
  EXPECT_EQ(cite(deck, &TrainConfig::seq_length), "train.seq_length = 32 (command line)");
}

TEST(section, every_key_with_words_has_one_of_them) {
  for (const Parameter& row : registry()) {
    if (row.allowed.empty()) continue;
    const auto* word = std::get_if<std::string>(&row.fallback);
    EXPECT_TRUE(std::holds_alternative<std::vector<std::string>>(row.fallback) ||
                (word != nullptr && std::ranges::find(row.allowed, *word) != row.allowed.end()))
        << row.key;
  }
}

}  // namespace
}  // namespace stowage::inputs
