#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "execution/error.hpp"
#include "inputs/deck/deck.hpp"

namespace stowage::inputs {

/// One key of a deck and the member of S that it fills.
template <class S>
struct Row {
  Parameter parameter;
  std::function<void(S&, const Value&)> set;
  std::function<const void*(const S&)> member;  ///< where the value lies, to find a key by it
};

/// The rows of a struct, in the order of the page. Specialised beside the struct, and declared in
/// its header: `template <> std::vector<Row<S>> rows<S>();`.
template <class S>
std::vector<Row<S>> rows();

/// The words of a key with what each stands for.
template <class T>
using Words = std::vector<std::pair<std::string_view, T>>;

/// The words of a key whose values are rows of a table: each row goes by its `name`.
template <class Table>
auto words_of(const Table& table) {
  Words<typename Table::value_type> words;
  for (const auto& row : table) words.emplace_back(row->name, row);
  return words;
}
/// The names of those rows that `allowed` is true of, as a message lists them.
template <class Table, class Allowed>
std::string names_of(const Table& table, Allowed&& allowed) {
  std::string names;
  for (const auto& row : table)
    if (allowed(*row)) names += (names.empty() ? "\"" : ", \"") + std::string(row->name) + "\"";
  return names;
}

namespace detail {

/// Out of line: inlined, GCC 12 warns of other types of a Value that it would free.
template <class T>
[[gnu::noinline]] void hold(Value& value, const T& member) {
  if constexpr (std::is_same_v<T, bool> || !std::is_arithmetic_v<T>)
    value.emplace<T>(member);
  else if constexpr (std::is_integral_v<T>)
    value.emplace<std::int64_t>(member);
  else
    value.emplace<double>(member);
}

template <class T>
void assign(T& member, const Value& value) {
  if constexpr (std::is_same_v<T, bool> || !std::is_arithmetic_v<T>)
    member = std::get<T>(value);
  else if constexpr (std::is_integral_v<T>)
    member = static_cast<T>(std::get<std::int64_t>(value));
  else
    member = static_cast<T>(std::get<double>(value));
}

template <class S>
const std::vector<Row<S>>& all_rows() {
  static const std::vector<Row<S>> all = rows<S>();
  return all;
}

template <class S, class T>
const Row<S>& row_of(T S::*member) {
  static const S section{};
  const std::vector<Row<S>>& all = all_rows<S>();
  const auto* const wanted = static_cast<const void*>(&(section.*member));
  const auto found = std::ranges::find_if(
      all, [&](const Row<S>& row) { return row.member && row.member(section) == wanted; });
  STOWAGE_ASSERT(found != all.end(), "a member that is no key of a deck, of {}",
                 all.empty() ? "a struct without keys" : all.front().parameter.key);
  return *found;
}

}  // namespace detail

/// The row of a member; the member's initializer is the default.
template <class S, class T>
Row<S> row(T S::*member, Parameter parameter) {
  detail::hold(parameter.fallback, S{}.*member);
  return {std::move(parameter),
          [member](S& section, const Value& value) { detail::assign(section.*member, value); },
          [member](const S& section) { return static_cast<const void*>(&(section.*member)); }};
}

/// The same for a key that has words, one for each value.
template <class S, class T>
Row<S> row(T S::*member, Parameter parameter, const std::type_identity_t<Words<T>>& words) {
  for (const auto& [word, value] : words) {
    parameter.allowed.push_back(word);
    if (value == S{}.*member) parameter.fallback.emplace<std::string>(word);
  }
  return {std::move(parameter),
          [member, words](S& section, const Value& value) {
            for (const auto& [word, meaning] : words)
              if (word == std::get<std::string>(value)) section.*member = meaning;
          },
          [member](const S& section) { return static_cast<const void*>(&(section.*member)); }};
}

/// The row of a key that says the opposite of its member.
template <class S>
Row<S> opposite(bool S::*member, Parameter parameter) {
  Row<S> made = row(member, std::move(parameter));
  made.parameter.fallback = !std::get<bool>(made.parameter.fallback);
  made.set = [member](S& section, const Value& value) { section.*member = !std::get<bool>(value); };
  return made;
}

/// The rows of a struct within S as rows of S. A member of it is named by its own struct:
/// key(&Part::member).
template <class S, class Part>
void append(std::vector<Row<S>>& all, Part S::*part) {
  for (const Row<Part>& row : detail::all_rows<Part>())
    all.push_back(
        {row.parameter,
         [part, set = row.set](S& section, const Value& value) { set(section.*part, value); },
         {}});
}

/// The key that fills a member.
template <class S, class T>
std::string_view key(T S::*member) {
  return detail::row_of(member).parameter.key;
}

/// "optim.lr = 0.003 (inputs/quickstart.toml:12)": a member as messages name it.
template <class S, class T>
std::string cite(const Deck& deck, T S::*member) {
  return deck.cite(key(member));
}

/// "optim.lr=0.003": a member as an override sets it.
template <class S, class T>
std::string override_of(T S::*member, std::string_view value) {
  return fmt::format("{}={}", key(member), value);
}

/// The struct as a deck fills it.
template <class S>
S read(const Deck& deck) {
  S section{};
  for (const Row<S>& row : detail::all_rows<S>()) row.set(section, deck.value(row.parameter.key));
  return section;
}

/// One member of it.
template <class S, class T>
T read(const Deck& deck, T S::*member) {
  S section{};
  const Row<S>& row = detail::row_of(member);
  row.set(section, deck.value(row.parameter.key));
  return section.*member;
}

/// A struct of a program as the registry sees it: its rows, and what they must be together.
struct Declared {
  std::vector<Parameter> rows;
  std::function<void(const Deck&)> check;  ///< throws a usage error that cites the keys
};

/// The rows of S, with `check(const S&, const Deck&)` of its namespace if there is one.
template <class S>
Declared declare() {
  Declared all;
  for (const Row<S>& row : detail::all_rows<S>()) all.rows.push_back(row.parameter);
  if constexpr (requires(const S& section, const Deck& deck) { check(section, deck); })
    all.check = [](const Deck& deck) { check(read<S>(deck), deck); };
  return all;
}

/// The structs that decks of these programs fill. Defined where all of them are known,
/// run/declared.cpp, as a program defines its main().
std::vector<Declared> declared();

}  // namespace stowage::inputs
