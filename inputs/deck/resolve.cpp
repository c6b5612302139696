// How values get into a deck: files, includes, overrides, and what is derived from others.
#include <fmt/core.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "inputs/deck/check.hpp"
#include "inputs/deck/deck.hpp"
#include "inputs/deck/foreign_keys.hpp"
#include "inputs/deck/help.hpp"
#include "inputs/deck/nearest.hpp"
#include "inputs/deck/source.hpp"

namespace stowage::inputs {

using execution::throw_usage;
namespace fs = std::filesystem;

namespace {

bool is_section(std::string_view name) {
  return std::ranges::find(sections(), name, &Section::name) != sections().end();
}

[[noreturn]] void throw_unknown_key(const std::string& where, const std::string& key) {
  if (const Retired* retired = find_retired(key))
    throw_usage("{}: '{}' is no key any more; {}", where, key,
                retired->instead.empty() ? std::string("leave it out")
                                         : fmt::format("write {} instead", retired->instead));
  const std::string section = key.substr(0, key.find('.'));
  if (!is_section(section) && key.find('.') != std::string::npos)
    throw_usage("{}: unknown key '{}': there is no section [{}]; {}", where, key, section,
                instead_of(key));
  throw_usage("{}: unknown key '{}'; {}", where, key, instead_of(key));
}

void check_word(const Parameter& row, const std::string& word, const std::string& where) {
  if (row.allowed.empty() || std::ranges::find(row.allowed, word) != row.allowed.end()) return;
  throw_usage("{}: {} = \"{}\": must be {}; nearest: \"{}\"", where, row.key, word, accepts(row),
              nearest(word, row.allowed));
}

void check_number(const Parameter& row, double number, const Value& value,
                  const std::string& where) {
  if (row.range.contains(number)) return;
  throw_usage("{}: {} = {} is out of range: must be {}", where, row.key, to_toml(value),
              accepts(row));
}

/// Texts become paths and names: UTF-8, and no character that ends a C string.
void check_text(const std::string& key, const std::string& text, const std::string& where) {
  if (text.find('\0') != std::string::npos) {
    throw_usage("{}: {} has a character of value 0", where, key);
  }
  if (!is_utf8(text)) throw_usage("{}: {} is not UTF-8", where, key);
}

/// Checks one value, of the right type, against its row.
void check_value(const Parameter& row, const Value& value, const std::string& where) {
  if (const auto* integer = std::get_if<std::int64_t>(&value)) {
    check_number(row, static_cast<double>(*integer), value, where);
  } else if (const auto* real = std::get_if<double>(&value)) {
    check_number(row, *real, value, where);
  } else if (const auto* word = std::get_if<std::string>(&value)) {
    check_text(std::string(row.key), *word, where);
    check_word(row, *word, where);
  } else if (const auto* words = std::get_if<std::vector<std::string>>(&value)) {
    for (const std::string& item : *words) check_word(row, item, where);
  } else if (const auto* integers = std::get_if<std::vector<std::int64_t>>(&value)) {
    for (const std::int64_t item : *integers) {
      check_number(row, static_cast<double>(item), value, where);
    }
  } else if (const auto* reals = std::get_if<std::vector<double>>(&value)) {
    for (const double item : *reals) check_number(row, item, value, where);
  }
}

constexpr std::size_t kMostFiles = 64;          // includes that double would never end
constexpr std::uintmax_t kMostBytes = 1 << 20;  // no deck is as long: it is another file

/// The text of a deck. A FIFO or a device would be waited for, or never end.
std::string read_text(const std::string& path, const std::string& included_at) {
  const std::string at = included_at.empty() ? "" : included_at + ": ";
  std::error_code error;
  const bool is_there = fs::exists(path, error);
  if (is_there && !fs::is_regular_file(path, error)) {
    throw_usage("{}cannot read deck '{}': not a plain file", at, path);
  }
  std::ifstream file(path, std::ios::binary);
  if (!file) throw_usage("{}cannot read deck '{}'", at, path);
  if (const std::uintmax_t bytes = fs::file_size(path, error); bytes > kMostBytes) {
    throw_usage("{}deck '{}' has {} bytes: no deck has more than {}", at, path, bytes, kMostBytes);
  }
  return {std::istreambuf_iterator<char>(file), {}};
}

/// All assignments of a deck, those of its includes first.
class Reader {
 public:
  std::vector<detail::Assignment> assignments;
  std::string given;
  std::vector<std::string> files;
  std::vector<std::string> problems;

  void read_file(const fs::path& path, const std::string& included_at) {
    std::error_code error;  // of what is no file, which read_text() refuses
    fs::path same = fs::weakly_canonical(path, error);
    if (error) same = path;
    if (std::ranges::find(open_, same) != open_.end()) {
      throw_usage("{}: include of '{}', which is being read already", included_at, path.string());
    }
    if (files.size() >= kMostFiles) {
      throw_usage("{}: a deck reads at most {} files, counted with repeats", included_at,
                  kMostFiles);
    }
    files.push_back(path.string());
    open_.push_back(same);
    read_text_of(read_text(path.string(), included_at), path.string(), path.parent_path());
    open_.pop_back();
  }

  void read_text_of(std::string_view text, const std::string& origin, const fs::path& folder) {
    detail::Source source = detail::parse_toml(text, origin);
    for (const std::string& include : source.includes) {
      read_file(folder / include, source.include_where);
    }
    std::ranges::move(source.assignments, std::back_inserter(assignments));
    for (const auto& [name, where] : source.empty_sections) {
      if (is_section(name)) continue;
      std::vector<std::string_view> names;
      for (const Section& section : sections()) names.push_back(section.name);
      problems.push_back(fmt::format("{}: unknown section [{}]; nearest: [{}]", where, name,
                                     nearest(name, names)));
    }
    // It goes into results: the file's name, not the folders of a machine.
    given += fmt::format("# {}\n{}", std::filesystem::path(origin).filename().string(), text);
    if (!given.ends_with('\n')) given += '\n';
  }

 private:
  std::vector<fs::path> open_;
};

constexpr const char* kCommandLine = "command line";

/// "a,b" as a list of words; "" as none.
std::vector<std::string> split_words(std::string_view text) {
  std::vector<std::string> words;
  while (!text.empty()) {
    const std::size_t comma = std::min(text.find(','), text.size());
    words.emplace_back(text.substr(0, comma));
    text.remove_prefix(std::min(comma + 1, text.size()));
  }
  return words;
}

/// Runs `f`; its usage error becomes one of `problems`.
template <class F>
void collect(std::vector<std::string>& problems, F&& f) {
  try {
    f();
  } catch (const execution::Error& error) {
    if (error.exit() != execution::Exit::usage) throw;
    problems.emplace_back(error.what());
  }
}

/// All mistakes of a deck and a command line at once, so that they are mended at once.
void throw_all(const std::vector<std::string>& problems) {
  constexpr std::size_t kMostShown = 20;
  if (problems.empty()) return;
  if (problems.size() == 1) throw_usage("{}", problems[0]);
  std::string text = fmt::format("{} mistakes", problems.size());
  for (std::size_t i = 0; i < std::min(kMostShown, problems.size()); ++i)
    text += "\n  " + problems[i];
  if (problems.size() > kMostShown)
    text += fmt::format("\n  and {} more", problems.size() - kMostShown);
  throw_usage("{}", text);
}

}  // namespace

/// The name that a key has in this version; the first use of an earlier one is remarked.
std::string Deck::present_name(const std::string& key, const std::string& where) {
  const Retired* retired = find_retired(key);
  if (retired == nullptr || !retired->renamed) return key;
  const std::string remark = fmt::format("{} is now {}", key, retired->instead);
  if (std::ranges::none_of(remarks_, [&](const std::string& r) { return r.ends_with(remark); }))
    remarks_.push_back(fmt::format("{}: {}", where, remark));
  return std::string(retired->instead);
}

void Deck::assign(const std::string& given, Value value, const std::string& where) {
  const std::string key = present_name(given, where);
  if (key.starts_with("expects.")) return assign_expectation(key, std::move(value), where);
  const Parameter* row = find(key);
  if (row == nullptr) throw_unknown_key(where, key);
  if (!detail::coerce(value, row->fallback, row->unit == "B")) {
    throw_usage("{}: {} = {} has the wrong type: must be {}, not {}", where, key, to_toml(value),
                accepts(*row), type_name(value));
  }
  check_value(*row, value, where);
  entries_[row - registry().data()] = {std::move(value), where, false};
}

void Deck::read_override(const std::string& text) {
  const std::string where = kCommandLine;
  const std::size_t equals = text.find('=');
  if (equals == std::string::npos || equals == 0) {
    throw_usage("{}: '{}' is no override: write section.key=value", where, text);
  }
  const std::string key = present_name(text.substr(0, equals), where);
  const std::string right = text.substr(equals + 1);
  Value value = detail::parse_override_value(right);
  const Parameter* row = find(key);
  const bool is_string = std::holds_alternative<std::string>(value);
  if (row != nullptr && std::holds_alternative<std::string>(row->fallback) && !is_string) {
    value = right;  // run.name=3 means the word 3
  }
  if (row != nullptr && is_string) {  // offload.modules=core_attn,moe_act
    if (std::holds_alternative<std::vector<std::string>>(row->fallback)) value = split_words(right);
  }
  if (row != nullptr && std::holds_alternative<std::int64_t>(value) &&
      std::holds_alternative<std::vector<std::int64_t>>(row->fallback)) {
    value = std::vector{std::get<std::int64_t>(value)};
  }
  assign(key, std::move(value), where);
  given_ += fmt::format("# override: {}\n", text);
}

void Deck::put(const Settings& settings) {
  for (const auto& [key, value] : settings) {
    if (where(key) == kCommandLine) continue;
    assign(key, value, kCommandLine);
    given_ += fmt::format("# override: {}={}\n", key, to_toml(value));
  }
  check(*this);
}

Deck Deck::resolve(std::vector<detail::Assignment> assignments, std::string given,
                   std::span<const std::string> overrides, std::vector<std::string> problems) {
  Deck deck;
  deck.given_ = std::move(given);
  for (detail::Assignment& a : assignments)
    collect(problems, [&] { deck.assign(a.key, std::move(a.value), a.where); });
  const bool expects = problems.empty() && !deck.expects_.empty();
  const std::string alone = expects ? deck.derived().numerics_sha256() : "";
  for (const std::string& text : overrides) collect(problems, [&] { deck.read_override(text); });
  throw_all(problems);
  deck.derive();
  if (!alone.empty() && deck.numerics_sha256() != alone) deck.drop_expectations_of_files();
  check(deck);
  return deck;
}

Deck Deck::load(const std::string& path, std::span<const std::string> overrides) {
  Reader reader;
  reader.read_file(path, "");
  Deck deck = resolve(std::move(reader.assignments), std::move(reader.given), overrides,
                      std::move(reader.problems));
  deck.files_ = std::move(reader.files);
  return deck;
}

Deck Deck::parse(std::string_view text, std::string_view origin,
                 std::span<const std::string> overrides, const Places& places) {
  Reader reader;
  reader.read_text_of(text, std::string(origin), {});
  for (detail::Assignment& one : reader.assignments)
    if (const auto place = places.find(one.key); place != places.end()) one.where = place->second;
  return resolve(std::move(reader.assignments), std::move(reader.given), overrides,
                 std::move(reader.problems));
}

Deck Deck::parse_stored(std::string_view text, std::string_view origin,
                        std::span<const std::string> overrides) {
  Reader reader;
  reader.read_text_of(text, std::string(origin), {});
  std::vector<std::string> left_out;
  std::erase_if(reader.assignments, [&](const detail::Assignment& a) {
    const Retired* retired = find_retired(a.key);
    if (retired == nullptr || retired->renamed) return false;
    left_out.push_back(fmt::format("{}: {} is left out: this version has {}", a.where, a.key,
                                   retired->instead.empty()
                                       ? std::string("none")
                                       : fmt::format("{} instead", retired->instead)));
    return true;
  });
  // An earlier version took paths that synthetic tokens do not read.
  const auto is_synthetic = [](const detail::Assignment& a) {
    return a.key == "data.source" && a.value == Value(std::string("synthetic"));
  };
  if (std::ranges::any_of(reader.assignments, is_synthetic))
    std::erase_if(reader.assignments, [](const detail::Assignment& a) {
      return a.key == "data.path" || a.key == "data.validation_path";
    });
  Deck deck = resolve(std::move(reader.assignments), std::move(reader.given), overrides,
                      std::move(reader.problems));
  deck.remarks_.insert(deck.remarks_.begin(), left_out.begin(), left_out.end());
  return deck;
}

Deck Deck::derived() const {
  Deck copy = *this;
  copy.derive();
  return copy;
}

void Deck::drop_expectations_of_files() {
  std::erase_if(expects_, [](const auto& held) { return held.second.second != kCommandLine; });
}

void Deck::derive() {
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    const Parameter& row = registry()[i];
    if (row.derived && entries_[i].value == Value(std::int64_t{0}))
      entries_[i] = {row.derived(*this), "derived", true};
  }
}

}  // namespace stowage::inputs
