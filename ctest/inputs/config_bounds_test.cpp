// Every row of every family's table of config.json: what it allows at its edge, and one beyond.
#include <gtest/gtest.h>

#include <algorithm>

#include "inputs/deck/deck.hpp"
#include "inputs/huggingface/config.hpp"
#include "support.hpp"

namespace stowage::inputs::huggingface {
namespace {

using testing::expect_parts;
using testing::usage_error;

/// A family's config.json with all kinds of its layers, and one more key.
Config read(const Family& family, std::string_view key, const std::string& value) {
  std::string text = fmt::format("{{\"model_type\": \"{}\"", family.model_type);
  const bool periodic =
      std::ranges::find(family.config, Meaning::period, &ConfigRow::meaning) != family.config.end();
  if (periodic)
    text += ", \"num_hidden_layers\": 4";
  else if (family.block.empty() && key != "layers_block_type")
    text += ", \"hybrid_override_pattern\": \"M*-E\"";
  return parse_config(fmt::format("{}, \"{}\": {}}}", text, key, value), "c");
}

/// Calls `check(family, row, key)` for all rows of a meaning, and all names of their keys.
template <class Check>
void for_rows(Meaning meaning, Check&& check) {
  int rows = 0;
  for (const Family* family : families())
    for (const ConfigRow& row : family->config)
      if (row.meaning == meaning)
        for (const std::string_view key : row.theirs) {
          SCOPED_TRACE(fmt::format("{}: {}", family->model_type, key));
          check(*family, row, key);
          ++rows;
        }
  EXPECT_GT(rows, 0);
}

void refuse(const Family& family, const ConfigRow& row, std::string_view key,
            const std::string& value, std::string_view allowed) {
  const std::string message = usage_error([&] { (void)read(family, key, value); });
  expect_parts(message, {"c: ", row.theirs[0], value, allowed});
}

/// The value that a deck's key got.
Value value_of(const Config& config, std::string_view key) {
  for (const auto& [name, value] : config.keys)
    if (name == key) return value;
  ADD_FAILURE() << key << " is not said";
  return {};
}

bool holds_integer(const ConfigRow& row) {
  return std::holds_alternative<std::int64_t>(find(row.ours)->fallback);
}

TEST(config_bounds, sizes_above_0) {
  for_rows(Meaning::positive, [](const Family& family, const ConfigRow& row, std::string_view key) {
    EXPECT_EQ(value_of(read(family, key, "1"), row.ours), Value(std::int64_t{1}));
    refuse(family, row, key, "0", "above 0");
    refuse(family, row, key, "-1", "above 0");
  });
}

TEST(config_bounds, integers) {
  for (const Meaning meaning : {Meaning::same, Meaning::positive})
    for_rows(meaning, [](const Family& family, const ConfigRow& row, std::string_view key) {
      if (!holds_integer(row)) return;
      EXPECT_EQ(value_of(read(family, key, "9223372036854775807"), row.ours),
                Value(std::int64_t{9223372036854775807}));
      refuse(family, row, key, "9223372036854775808", "at most 2^63 - 1");
      for (const char* value : {"1.5", "\"1\"", "true", "NaN", "Infinity", "[1]"})
        refuse(family, row, key, value, "an integer");
    });
}

TEST(config_bounds, numbers_flags_and_words) {
  for_rows(Meaning::same, [](const Family& family, const ConfigRow& row, std::string_view key) {
    const Value& like = find(row.ours)->fallback;
    if (std::holds_alternative<double>(like)) {
      EXPECT_EQ(value_of(read(family, key, "0.125"), row.ours), Value(0.125));
      EXPECT_EQ(value_of(read(family, key, "Infinity"), row.ours), Value(kInfinity));
      for (const char* value : {"NaN", "\"Infinity\"", "\"1\"", "true", "[]"})
        refuse(family, row, key, value, "a number");
    } else if (std::holds_alternative<bool>(like)) {
      EXPECT_EQ(value_of(read(family, key, "false"), row.ours), Value(false));
      for (const char* value : {"0", "1", "\"true\""})
        refuse(family, row, key, value, "true or false");
    } else if (!holds_integer(row)) {
      for (const char* value : {"\"gelu\"", "1", "true"})
        refuse(family, row, key, value, row.fallback);
    }
  });
  for_rows(Meaning::opposite, [](const Family& family, const ConfigRow& row, std::string_view key) {
    EXPECT_EQ(value_of(read(family, key, "true"), row.ours), Value(false));
    EXPECT_EQ(value_of(read(family, key, "false"), row.ours), Value(true));
    refuse(family, row, key, "0", "true or false");
  });
}

TEST(config_bounds, layers) {
  for_rows(Meaning::layers, [](const Family& family, const ConfigRow& row, std::string_view key) {
    const auto letters = [&](const char* blocks) {
      return std::get<std::string>(value_of(read(family, key, blocks), row.ours)).size();
    };
    EXPECT_EQ(letters("1"), family.block.size());
    EXPECT_EQ(letters("100000"), 100000 * family.block.size());
    for (const char* value :
         {"0", "100001", "9223372036854775808", "18446744073709551615", "-1", "1.0", "\"1\""})
      refuse(family, row, key, value, "1 to 100000");
  });
}

TEST(config_bounds, two_limits) {
  for_rows(Meaning::limits, [](const Family& family, const ConfigRow& row, std::string_view key) {
    const Config wrapped = read(family, key, R"([0.5, {"__float__": "Infinity"}])");
    EXPECT_EQ(value_of(wrapped, "model.mamba_dt_min"), Value(0.5));
    EXPECT_EQ(value_of(wrapped, "model.mamba_dt_max"), Value(kInfinity));
    EXPECT_EQ(read(family, key, "[0.5, Infinity]").keys, wrapped.keys);
    for (const char* value : {"[0.5]", "[0.5,1,2]", "[0.5,NaN]", "[NaN,1]", "[0.5,\"Infinity\"]",
                              "[0.5,null]", "[0.5,true]", "[[],[]]", "1", "\"0.5\"",
                              R"([0.5,{"__float__":"NaN"}])", R"([0.5,{"__float__":1}])"})
      refuse(family, row, key, value, "two numbers");
  });
}

TEST(config_bounds, fixed_values) {
  for_rows(Meaning::fixed, [](const Family& family, const ConfigRow& row, std::string_view key) {
    EXPECT_NO_THROW((void)read(family, key, std::string(row.fallback)));
    int refused = 0;
    for (const char* value : {"false", "true", "0", "1", "-1", "0.5", "\"gelu\"", "[1]", "{}"}) {
      const bool meant =
          value == row.fallback || (row.fallback == "0.0" && value[0] == '0' && !value[1]);
      if (meant) continue;
      refuse(family, row, key, value, row.help);
      ++refused;
    }
    EXPECT_GE(refused, 8);
  });
}

// A key that is null counts as missing.
TEST(config_bounds, null_says_nothing) {
  for (const Meaning meaning : {Meaning::same, Meaning::positive, Meaning::opposite, Meaning::fixed,
                                Meaning::limits, Meaning::layers, Meaning::rope})
    for_rows(meaning, [](const Family& family, const ConfigRow&, std::string_view key) {
      EXPECT_EQ(read(family, key, "null").keys, read(family, "use_cache", "true").keys);
    });
}

TEST(config_bounds, rotary_numbers) {
  for_rows(Meaning::rope, [](const Family& family, const ConfigRow&, std::string_view key) {
    const auto why = [&](const std::string& value) {
      return usage_error([&] { (void)read(family, key, value); });
    };
    expect_parts(why("[1]"), {key, "an object"});
    for (const char* theta : {"NaN", "\"1\"", "[]", "true"})
      expect_parts(why(fmt::format("{{\"rope_theta\": {}}}", theta)), {"rope_theta", "a number"});
    expect_parts(why(R"({"rope_type": null, "type": "linear"})"), {"linear", "not supported"});
    const Config null = read(family, key, R"({"rope_type": null, "factor": null})");
    EXPECT_EQ(null.keys, read(family, "use_cache", "true").keys);
    std::string scaling = R"("rope_type": "llama3")";
    for (const Word& word : scaling_words()) {
      expect_parts(why("{" + scaling + "}"), {"llama3", "needs", word.theirs});
      const std::string number = fmt::format("{}, \"{}\": ", scaling, word.theirs);
      expect_parts(why("{" + number + "NaN}"), {word.theirs, "a number"});
      scaling = number + "2.0";
    }
    EXPECT_NO_THROW((void)read(family, key, "{" + scaling + "}"));
  });
}

TEST(config_bounds, a_pattern_has_as_many_letters_as_layers) {
  const Family& family = family_of("nemotron_h", "c");
  EXPECT_NO_THROW((void)read(family, "num_hidden_layers", "4"));
  for (const char* value : {"3", "5", "\"4\""})
    expect_parts(usage_error([&] { (void)read(family, "num_hidden_layers", value); }),
                 {"num_hidden_layers", value, "4 layers"});
  for (const char* value : {"1", "{}", "[1]", "[\"M\"]"})
    (void)usage_error([&] { (void)read(family, "layers_block_type", value); });
}

}  // namespace
}  // namespace stowage::inputs::huggingface
