// JSON of other people: Python's numbers, depth, control characters, keys that no family has.
#include <gtest/gtest.h>

#include <cmath>

#include "inputs/deck/deck.hpp"
#include "inputs/huggingface/config.hpp"
#include "inputs/huggingface/config_json.hpp"
#include "inputs/huggingface/json_limits.hpp"
#include "support.hpp"

namespace stowage::inputs::huggingface {
namespace {

using testing::expect_parts;
using testing::usage_error;

const std::string kMamba = R"({"model_type": "mamba2", "num_hidden_layers": 1)";

Config config(const std::string& more, const PassedOver& passed = {}) {
  return parse_config(kMamba + ", " + more + "}", "c", passed);
}

std::string why_not(const std::string& more, const PassedOver& passed = {}) {
  return usage_error([&] { (void)config(more, passed); });
}

TEST(config_json, words_are_numbers_and_strings_stay_strings) {
  const std::string text =
      R"({"NaN": "NaN", "a": [NaN, "Infinity", -Infinity, "\\", "\"NaN"], "b": )"
      R"({"Infinity": Infinity}, "c": "", "d": {"__float__": "Infinity"}, "e": -1.5})";
  const auto value = detail::parse_python_json(text, "c");
  EXPECT_TRUE(value["NaN"].is_string());
  EXPECT_TRUE(std::isnan(value["a"][0].get<double>()));
  EXPECT_TRUE(value["a"][1].is_string());
  EXPECT_EQ(value["a"][2].get<double>(), -kInfinity);
  EXPECT_EQ(value["b"]["Infinity"].get<double>(), kInfinity);
  EXPECT_TRUE(value["d"].is_object());
  EXPECT_EQ(detail::number_of(value["d"]), kInfinity);
  // The very text, but for blanks.
  std::string same = text;
  std::erase(same, ' ');
  EXPECT_EQ(detail::python_json_text(value, -1), same);
  for (const char* bad :
       {"{NaN: 1}", "{\"a\": 1NaN}", "[NaNNaN]", "[Nan]", "[-NaN]", "\"", "[\"\\"})
    expect_parts(usage_error([&] { (void)detail::parse_python_json(bad, "c"); }), {"c", "no JSON"});
}

TEST(config_json, what_was_imported_is_given_back) {
  const std::string kept = R"("_name_or_path": "NaN", "transformers_version": "Infinity",
    "rms_norm": false, "initializer_range": 1, )";
  for (const char* limits : {"[0.001, Infinity]", R"([0.001, {"__float__": "Infinity"}])"}) {
    const std::string text = kMamba + ", " + kept + "\"time_step_limit\": " + limits + "}";
    const Config read = parse_config(text, "c");
    const Deck deck = Deck::parse(read.deck_text() + "[data]\nsource = \"synthetic\"\n", "c");
    const auto before = detail::parse_python_json(text, "c");
    const std::string written = config_text(*read.family, deck, text);
    const auto after = detail::parse_python_json(written, "again");
    for (const auto& [key, value] : before.items())
      EXPECT_EQ(detail::python_json_text(after[key], -1), detail::python_json_text(value, -1))
          << key;
    EXPECT_EQ(after["_name_or_path"], "NaN") << written;
    EXPECT_TRUE(written.starts_with("{\n  \"") && written.ends_with("\n}\n")) << written;
  }
}

TEST(config_json, depth_is_bounded) {
  const auto nested = [](int levels, const char* open, const char* close) {
    std::string text;
    for (int i = 0; i < levels; ++i) text += open;
    text += "1";
    for (int i = 0; i < levels; ++i) text += close;
    return "\"bos_token_id\": " + text;
  };
  constexpr int kInside = detail::kMaxJsonDepth - 1;  // the object around it is a level
  EXPECT_NO_THROW((void)config(nested(kInside, "[", "]")));
  EXPECT_NO_THROW((void)config(nested(kInside, "{\"a\":", "}")));
  expect_parts(why_not(nested(kInside + 1, "[", "]")), {"c: ", "64 deep"});
  expect_parts(why_not(nested(kInside + 1, "{\"a\":", "}")), {"64 deep"});
  expect_parts(why_not(nested(1000000, "[", "]")), {"64 deep"});
  EXPECT_NO_THROW((void)config("\"bos_token_id\": \"" + std::string(1000, '[') + "\""));
}

// As many values as are allowed, of the kinds that cost most: in time for a suite.
TEST(config_json, values_are_bounded) {
  const auto listed = [](std::int64_t values, std::string_view item) {
    std::string text = "\"bos_token_id\": [";
    for (std::int64_t i = 1; i < values; ++i) text += fmt::format("{},", item);
    return text + std::string(item) + "]";
  };
  // The object around it, its commas and the list count, too.
  EXPECT_NO_THROW((void)config(listed(detail::kMaxConfigValues - 3, "1")));
  expect_parts(why_not(listed(detail::kMaxConfigValues - 2, "1")), {"c: ", "more than 65536"});
  EXPECT_NO_THROW((void)config(listed(detail::kMaxConfigValues / 2 - 3, "{}")));
  std::string labels = "\"id2label\": {\"n\": 0";
  for (int i = 0; i < 30000; ++i) labels += fmt::format(", \"{}\": \"n{}\"", i, i);
  EXPECT_NO_THROW((void)config(labels + "}"));
}

TEST(config_json, messages_are_one_line_and_short) {
  const std::string message =
      why_not(R"("a\u001b[2J\nstowage: error: b": ")" + std::string(100000, 'x') + '"');
  expect_parts(message, {"a\\x1b[2J\\x0astowage: error: b", "xxx", " ...", "--ignore-key"});
  EXPECT_EQ(message.find('\n'), std::string::npos);
  EXPECT_EQ(message.find('\x1b'), std::string::npos);
  EXPECT_LT(message.size(), 1000U);
  expect_parts(usage_error([] { (void)parse_config("{\"model_type\": \"\\u001b[2J\"}", "c"); }),
               {"\\x1b[2J"});
}

TEST(config_json, harmless_keys_are_passed_over) {
  const Config plain = config("\"use_cache\": true");
  for (const char* key :
       {"\"_attn_implementation_autoset\": true", "\"unsloth_fixed\": true",
        "\"unsloth_version\": \"2025.9.7\"", "\"use_flash_attn\": true",
        "\"tokenizer_class\": \"Qwen2Tokenizer\"", "\"name_or_path\": \"x\"", "\"top_k\": 50"}) {
    EXPECT_EQ(config(key).keys, plain.keys) << key;
    EXPECT_TRUE(config(key).ignored.empty()) << key;
  }
  EXPECT_EQ(config("\"norm_before_gate\": true, \"time_step_scale\": 1.0").keys, plain.keys);
  const Config null = config("\"never_heard_of\": null");
  EXPECT_EQ(null.keys, plain.keys);
  EXPECT_EQ(null.ignored, std::vector<std::string>{"never_heard_of"});
  for (const char* value : {"false", "0", "\"\"", "[]", "{}"})
    expect_parts(why_not(fmt::format("\"never_heard_of\": {}", value)),
                 {"c: never_heard_of = ", value, "mamba2", "--ignore-key never_heard_of",
                  "checkpoint.allow_changes=true"});
}

TEST(config_json, unknown_keys_are_passed_over_by_name) {
  const std::string two = "\"one\": 1, \"two\": 2";
  EXPECT_EQ(config(two, {.keys = {"one", "two"}}).ignored,
            (std::vector<std::string>{"one", "two"}));
  EXPECT_EQ(config(two, {.all = true}).ignored.size(), 2U);
  expect_parts(why_not(two, {.keys = {"one"}}), {"two = 2"});
  // A key that is known counts, whatever is said.
  expect_parts(why_not(two, {.keys = {"one", "two", "hidden_size"}}), {"--ignore-key hidden_size"});
  expect_parts(why_not("\"use_bias\": true", {.all = true}), {"use_bias"});
}

TEST(config_json, types_as_all_versions_write_them) {
  const auto dtype = [](const std::string& more) { return config(more).dtype; };
  for (const char* key : {"dtype", "torch_dtype"})
    for (const char* prefix : {"", "torch."}) {
      EXPECT_EQ(dtype(fmt::format("\"{}\": \"{}bfloat16\"", key, prefix)), "bf16");
      EXPECT_EQ(dtype(fmt::format("\"{}\": \"{}float32\"", key, prefix)), "fp32");
      EXPECT_EQ(dtype(fmt::format("\"{}\": \"{}float64\"", key, prefix)), "fp64");
    }
  for (const char* none : {"null", "\"auto\"", "\"float16\"", "1"})
    EXPECT_EQ(dtype(fmt::format("\"dtype\": {}", none)), "") << none;
}

}  // namespace
}  // namespace stowage::inputs::huggingface
