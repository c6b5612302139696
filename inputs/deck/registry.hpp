#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "inputs/deck/value.hpp"

namespace stowage::inputs {

class Deck;

inline constexpr double kInfinity = std::numeric_limits<double>::infinity();

/// The numbers a key accepts: from `low` to `high`, each included unless its `open` flag is set.
/// For a list, each item.
struct Range {
  double low = -kInfinity;
  double high = kInfinity;
  bool open_low = false;
  bool open_high = false;
  bool or_zero = false;  ///< 0 too, which means "not known" where the range begins above it

  bool contains(double value) const;
  std::string text() const;  ///< "[0, 1)", "{0} or [1, inf)"; empty if anything goes
};

// Infinity lies in none of these but the one that says so.
constexpr Range at_least(double low) { return {.low = low, .open_high = true}; }
constexpr Range above(double low) { return {.low = low, .open_low = true, .open_high = true}; }
constexpr Range above_or_infinite(double low) { return {.low = low, .open_low = true}; }
constexpr Range zero_or_at_least(double low) {
  return {.low = low, .open_high = true, .or_zero = true};
}
constexpr Range between(double low, double high) { return {.low = low, .high = high}; }
constexpr Range from_to_below(double low, double high) {
  return {.low = low, .high = high, .open_high = true};
}

// Upper ends of ranges: an integer that layers hold as an int, or more than any machine has. Each
// is below 2^53, so that a double holds it exactly.
inline constexpr double kMostInt = 2147483647;
inline constexpr double kMostWidth = 1 << 20;  // of a layer, a head, a state
inline constexpr double kMostCount = 1 << 16;  // of heads, groups, experts, ranks on one axis
inline constexpr double kMostSteps = 1e12;
inline constexpr double kMostTokens = 0x1p40;
inline constexpr double kMostBytes = 0x1p52;

/// One parameter: the row that makes the TOML key, the override, the help, the page of
/// docs/reference/deck.md and the HDF5 attribute.
struct Parameter {
  /// "section.name".
  std::string_view key = {};
  /// The default; its type is the type of the key.
  Value fallback = {};
  /// "B" also accepts sizes such as "64 GiB"; empty: a plain number or text.
  std::string_view unit = {};
  Range range = {};
  /// The words that a string, or each item of a list, may be; empty: any.
  std::vector<std::string_view> allowed = {};
  /// Does the value decide what a step computes?
  bool numerics = false;
  /// The letter of the layers that it is a size of; empty: of any model, or of none.
  std::string_view letter = {};
  /// One or more sentences.
  std::string_view help = {};
  /// What 0 stands for in a deck, if it is derived from other keys.
  std::function<std::int64_t(const Deck&)> derived = {};

  std::string_view section() const { return key.substr(0, key.find('.')); }
  std::string_view name() const { return key.substr(key.find('.') + 1); }
};

/// All rows, grouped by section, in the order in which decks are printed.
std::span<const Parameter> registry();

/// The row of a key, or nullptr.
const Parameter* find(std::string_view key);

/// A key of earlier versions, which the decks inside older results still have.
struct Retired {
  std::string_view key;
  std::string_view instead;  ///< the keys that replace it; none: nothing does
  bool renamed = false;      ///< `instead` is the same key under its present name
};

/// The retired key of this name, or nullptr.
const Retired* find_retired(std::string_view key);

/// The registered key that a wrong one most likely means ("train.lr" means "optim.lr"); empty if
/// none is like it.
std::string_view nearest_key(std::string_view key);

/// A section of the registry: its name and what it is about.
struct Section {
  std::string_view name;
  std::string_view help;
};

/// All sections in the order of registry(), then what is no row: `expects`, with free keys
/// (deck.hpp), and `include`.
std::span<const Section> sections();

}  // namespace stowage::inputs
