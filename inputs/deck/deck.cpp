#include "inputs/deck/deck.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>

#include "inputs/deck/sha256.hpp"

namespace stowage::inputs {

using execution::throw_usage;

namespace {

/// Takes "loss_at_100" or "final_val_loss" apart; quantity stays empty for any other text.
Expectation parse_expectation(std::string_view key) {
  static constexpr std::array<std::string_view, 3> kQuantities = {"loss", "val_loss", "grad_norm"};
  Expectation parsed{.key = std::string(key), .quantity = {}, .step = -1, .low = 0, .high = 0};
  for (const std::string_view quantity : kQuantities) {
    const std::string stem = std::string(quantity) + "_at_";
    const std::string_view digits = key.starts_with(stem) ? key.substr(stem.size()) : "";
    const bool number =
        !digits.empty() && digits.size() < 18 &&
        std::ranges::all_of(digits, [](unsigned char c) { return std::isdigit(c); });
    if (number) parsed.step = std::stoll(std::string(digits));
    if (number || key == "final_" + std::string(quantity)) parsed.quantity = quantity;
  }
  return parsed;
}

}  // namespace

Deck::Deck() {
  for (const Parameter& row : registry()) entries_.push_back({row.fallback, "default", true});
}

const Value& Deck::value(std::string_view key) const {
  const Parameter* row = find(key);
  STOWAGE_ASSERT(row != nullptr, "deck key '{}' is not in the registry", key);
  return entries_[row - registry().data()].value;
}

const std::string& Deck::where(std::string_view key) const {
  const Parameter* row = find(key);
  STOWAGE_ASSERT(row != nullptr, "deck key '{}' is not in the registry", key);
  return entries_[row - registry().data()].where;
}

std::string Deck::cite(std::string_view key) const {
  return fmt::format("{} = {} ({})", key, to_toml(value(key)), where(key));
}

std::vector<Deck::Row> Deck::rows() const {
  std::vector<Row> all;
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    const Parameter& row = registry()[i];
    all.push_back({row.key, entries_[i].value, row.unit, entries_[i].is_default, row});
  }
  return all;
}

std::vector<Expectation> Deck::expectations() const {
  std::vector<Expectation> all;
  for (const auto& [key, held] : expects_) {
    Expectation expectation = parse_expectation(key);
    expectation.low = held.first[0];
    expectation.high = held.first[1];
    all.push_back(std::move(expectation));
  }
  return all;
}

std::string Deck::text() const {
  std::string text;
  std::string_view section;
  for (const Row& row : rows()) {
    if (row.parameter.section() != section) {
      text += fmt::format("{}[{}]\n", text.empty() ? "" : "\n", row.parameter.section());
      section = row.parameter.section();
    }
    text += fmt::format("{} = {}\n", row.parameter.name(), to_toml(row.value));
  }
  if (!expects_.empty()) text += "\n[expects]\n";
  for (const auto& [key, held] : expects_) {
    text += fmt::format("{} = {}\n", key, to_toml(Value(held.first)));
  }
  return text;
}

std::string Deck::sha256() const { return sha256_hex(text()); }

std::string Deck::numerics_sha256() const {
  std::string text;
  for (const Row& row : rows()) {
    if (row.parameter.numerics) text += fmt::format("{} = {}\n", row.key, to_toml(row.value));
  }
  return sha256_hex(text);
}

void Deck::assign_expectation(const std::string& key, Value value, const std::string& where) {
  const std::string name = key.substr(key.find('.') + 1);
  if (parse_expectation(name).quantity.empty()) {
    throw_usage(
        "{}: unknown key '{}'; [expects] has loss_at_<step>, val_loss_at_<step>, "
        "grad_norm_at_<step>, final_loss, final_val_loss and final_grad_norm",
        where, key);
  }
  if (const auto* integers = std::get_if<std::vector<std::int64_t>>(&value)) {
    value = std::vector<double>(integers->begin(), integers->end());
  }
  const auto* band = std::get_if<std::vector<double>>(&value);
  const bool finite =
      band != nullptr && std::ranges::all_of(*band, [](double end) { return std::isfinite(end); });
  if (!finite || band->size() != 2 || !((*band)[0] <= (*band)[1])) {
    throw_usage("{}: {} = {} must be a band [low, high] of finite numbers, low <= high", where, key,
                to_toml(value));
  }
  expects_[name] = {*band, where};
}

}  // namespace stowage::inputs
