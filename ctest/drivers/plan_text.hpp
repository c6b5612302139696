// stowage_plan in process: what it says to some words, and how a test reads that.
#pragma once

#include <gtest/gtest.h>
#include <regex.h>

#include <algorithm>
#include <limits>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "drivers/plan/command.hpp"
#include "execution/error.hpp"

namespace stowage::drivers::test {

using Words = std::vector<std::string>;

inline Words operator+(Words one, const Words& more) {
  one.insert(one.end(), more.begin(), more.end());
  return one;
}

/// What a time is predicted from at least.
inline const Words kRates = {"machine.matmul_flops_per_s=7.05e14",
                             "machine.device_copy_bytes_per_s=4.24e12"};

/// A file of the sources.
inline std::string source(std::string_view path) {
  return std::string(STOWAGE_SOURCE) + "/" + std::string(path);
}

/// A deck that is shipped, with a pattern of fewer layers.
inline Words dense(const std::string& pattern = "M-M*-M-") {
  return {source("inputs/hybrid-dense-1b.toml"), "model.pattern=" + pattern};
}
inline Words experts(const std::string& pattern = "MEM*EM") {
  return {source("inputs/hybrid-moe-2b.toml"), "model.pattern=" + pattern};
}
inline Words tiny() { return {source("ctest/drivers/tiny.toml")}; }

inline PlanAnswer ask(const Words& words) {
  std::vector<const char*> argv = {"stowage_plan"};
  for (const std::string& word : words) argv.push_back(word.c_str());
  return answer(parse_plan_command(static_cast<int>(argv.size()), argv.data()));
}

/// The text of a plan that fits; asked once.
inline const std::string& plan(const Words& words) {
  static std::map<Words, std::string> known;
  const auto [found, added] = known.try_emplace(words);
  if (added) {
    try {
      const PlanAnswer said = ask(words);
      EXPECT_EQ(said.exit, execution::Exit::valid) << said.text;
      found->second = said.text;
    } catch (const execution::Error& error) {
      ADD_FAILURE() << error.what();
    }
  }
  return found->second;
}

/// The text of a plan that does not fit.
inline std::string too_large(const Words& words) {
  const PlanAnswer said = ask(words);
  EXPECT_EQ(said.exit, execution::Exit::invalid) << said.text;
  return said.text;
}

/// The message of a refusal.
inline std::string refusal(const Words& words) {
  try {
    ADD_FAILURE() << "not refused: " << ask(words).text;
  } catch (const execution::Error& error) {
    EXPECT_EQ(error.exit(), execution::Exit::usage) << error.what();
    return error.what();
  }
  return {};
}

inline bool has(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

inline ::testing::AssertionResult says(std::string_view text, std::string_view part) {
  if (has(text, part)) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure() << "'" << part << "' is not in:\n" << text;
}

/// All matches of an extended POSIX expression, line by line: what its groups caught; without
/// groups the match itself.
inline std::vector<Words> find_all(const std::string& text, const std::string& pattern) {
  regex_t expression;
  if (regcomp(&expression, pattern.c_str(), REG_EXTENDED | REG_NEWLINE) != 0) {
    ADD_FAILURE() << "no expression: " << pattern;
    return {};
  }
  const std::size_t groups = expression.re_nsub;
  std::vector<regmatch_t> at(groups + 1);
  std::vector<Words> all;
  for (std::size_t from = 0; from <= text.size();) {
    const char* rest = text.c_str() + from;
    const int inside = from > 0 && text[from - 1] != '\n' ? REG_NOTBOL : 0;
    if (regexec(&expression, rest, at.size(), at.data(), inside) != 0) break;
    Words& caught = all.emplace_back();
    for (std::size_t i = groups > 0 ? 1 : 0; i <= groups; ++i)
      caught.emplace_back(at[i].rm_so < 0 ? ""
                                          : std::string(rest + at[i].rm_so, rest + at[i].rm_eo));
    from += static_cast<std::size_t>(std::max<regoff_t>(at[0].rm_eo, 1));
  }
  regfree(&expression);
  return all;
}

inline ::testing::AssertionResult matches(const std::string& text, const std::string& pattern) {
  if (!find_all(text, pattern).empty()) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure() << "nothing like '" << pattern << "' is in:\n" << text;
}

/// The number that the first match's last group caught; NaN, with a failure, if there is none.
inline double number(const std::string& text, const std::string& pattern) {
  const std::vector<Words> found = find_all(text, pattern);
  if (found.empty()) {
    ADD_FAILURE() << "nothing like '" << pattern << "' is in:\n" << text;
    return std::numeric_limits<double>::quiet_NaN();
  }
  return std::stod(found.front().back());
}

/// A row of bytes: "transient", "all device memory".
inline double bytes(const std::string& text, const std::string& row) {
  return number(text, "  " + row + " +([0-9]+) B");
}

/// A row of the predicted time: "step".
inline double ms(const std::string& text, const std::string& row = "step") {
  return number(text, "  " + row + " +([0-9.]+) ms");
}

}  // namespace stowage::drivers::test
