#pragma once

#include <iosfwd>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "forecast/plan/rank_digest.hpp"

/// The form in which ctest/golden/programs.txt keeps what decks record and plan.
namespace stowage::ctest {

/// A deck of inputs/ with overrides: a row of cases.txt.
struct GoldenCase {
  std::string deck, name;
  std::vector<std::string> overrides;

  std::string key() const { return deck + ' ' + name; }
};

/// @throws std::runtime_error for a line that is none
std::vector<GoldenCase> read_cases(std::istream& file);

/// Four letters for each op: of its name and place, its uses, its cost and its communication.
/// Layers and microbatches count from the op's own, so those of one kind have the same letters.
struct OpLetters {
  static constexpr std::size_t kParts = 4;

  static std::string of(const execution::OpText& op);
  /// Where letters differ: "uses, cost".
  static std::string difference(std::string_view now, std::string_view then);
};

/// What is kept of a program with its plan.
struct GoldenPlan {
  std::string name, program;       ///< RankText::Planned::name; hexadecimal digits
  std::vector<std::string> parts;  ///< a few letters for each part of PlanText
};

struct GoldenRank {
  std::string layout;
  std::vector<GoldenPlan> plans;
};

/// All that the file holds.
struct GoldenPrograms {
  /// OpLetters of all ops, by program; while it is written with a space before each other layer.
  std::map<std::string, std::string> ops;
  /// By GoldenCase::key(); a rank for each stage of the pipeline, none if the deck is refused.
  std::map<std::string, std::vector<GoldenRank>> cases;

  /// Adds what a case records and plans.
  void add(const GoldenCase& one, const std::vector<forecast::RankText>& ranks);

  static GoldenPrograms read(std::istream& file);
  void write(std::ostream& file) const;
};

/// What differs between a case and the file, a line each: the first op of a program, the parts of a
/// plan. Empty if nothing does.
std::string difference(const GoldenPrograms& golden, const GoldenCase& one,
                       const std::vector<forecast::RankText>& ranks);

}  // namespace stowage::ctest
