#include "inputs/deck/help.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <iterator>

#include "execution/error.hpp"
#include "inputs/deck/foreign_keys.hpp"

namespace stowage::inputs {

namespace {

std::string first_sentence(std::string_view help) {
  const std::size_t end = help.find(". ");
  return std::string(help.substr(0, end == std::string_view::npos ? help.size() : end + 1));
}

std::string join(const std::vector<std::string_view>& words) {
  std::string text;
  for (const std::string_view word : words) {
    text += fmt::format("{}\"{}\"", text.empty() ? "" : ", ", word);
  }
  return text;
}

/// `text` in lines of at most `width` characters, each after `indent` blanks.
std::string wrap(std::string_view text, std::size_t indent, std::size_t width) {
  std::string wrapped, line;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find(' '), text.size());
    if (!line.empty() && indent + line.size() + 1 + end > width) {
      wrapped += fmt::format("{:{}}{}\n", "", indent, line);
      line.clear();
    }
    if (!line.empty()) line += ' ';
    line += text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return fmt::format("{}{:{}}{}\n", wrapped, "", indent, line);
}

std::string describe(const Parameter& row) {
  std::string text = fmt::format("{}\n", row.key);
  text += wrap(row.help, 4, 80);
  text += wrap(fmt::format("value:   {}", accepts(row)), 4, 80);
  text += wrap(fmt::format("default: {}", to_toml(row.fallback)), 4, 80);
  if (!row.unit.empty()) text += fmt::format("    unit:    {}\n", row.unit);
  text += fmt::format("    {}\n", row.numerics ? "decides what a step computes"
                                               : "changes no bit of what a step computes");
  return text;
}

/// A cell of a Markdown table: a bar inside it would end it, and `<` starts HTML.
std::string cell(std::string_view text) {
  std::string escaped;
  for (const char c : text) {
    if (c == '|' || c == '<') escaped += '\\';
    escaped += c;
  }
  return escaped;
}

std::string page_row(const Parameter& row) {
  const std::string accepted =
      accepts(row) + (row.unit.empty() ? "" : fmt::format(" ({})", row.unit));
  return fmt::format("| `{}` | `{}` | {} | {} | {} |\n", row.name(), to_toml(row.fallback),
                     cell(accepted), row.numerics ? "yes" : "", cell(row.help));
}

}  // namespace

std::string accepts(const Parameter& row) {
  const bool is_list = row.fallback.index() >= Value(std::vector<std::int64_t>{}).index();
  if (!row.allowed.empty()) {
    return fmt::format("{} {}", is_list ? "a list of" : "one of", join(row.allowed));
  }
  std::string text(type_name(row.fallback));
  if (row.unit == "B") text += " or a size such as \"64 GiB\"";
  const std::string range = row.range.text();
  return range.empty() ? text : fmt::format("{} in {}", text, range);
}

std::string help_keys() {
  std::string text = "Keys of a deck, each also an override section.key=value:\n";
  for (const Section& section : sections()) {
    text += fmt::format("\n[{}] {}\n", section.name, first_sentence(section.help));
    for (const Parameter& row : registry()) {
      if (row.section() != section.name) continue;
      text += fmt::format("  {:<30} {} (default {})\n", row.name(), first_sentence(row.help),
                          to_toml(row.fallback));
    }
  }
  return text;
}

std::string help_key(std::string_view key) {
  if (const Retired* retired = find_retired(key); retired != nullptr && retired->renamed)
    key = retired->instead;
  if (const Parameter* row = find(key)) return describe(*row);
  const auto section = std::ranges::find(sections(), key, &Section::name);
  if (section == sections().end()) {
    execution::throw_usage("unknown key '{}'; {}", key, instead_of(key));
  }
  std::string text = fmt::format("[{}]\n{}", section->name, wrap(section->help, 4, 80));
  for (const Parameter& row : registry()) {
    if (row.section() == key) text += fmt::format("\n{}", describe(row));
  }
  return text;
}

std::string reference_page() {
  std::string page =
      "# Deck reference\n\n"
      "Written by `stowage_deck_reference` from the registry in `inputs/deck/`; do not edit.\n\n"
      "A deck is a TOML file. Each key is also an override on the command line, "
      "`section.key=value`; the last one wins. `--print-config` prints the deck with every key, "
      "`--help-key section.key` explains one. *Numerics* marks keys that decide what a step "
      "computes; all others change no bit of it.\n";
  for (const Section& section : sections()) {
    page += fmt::format("\n## {}\n\n{}\n", section.name, section.help);
    std::string table;
    for (const Parameter& row : registry()) {
      if (row.section() == section.name) table += page_row(row);
    }
    if (table.empty()) continue;
    page += "\n| key | default | value | numerics | meaning |\n| --- | --- | --- | --- | --- |\n";
    page += table;
  }
  return page;
}

}  // namespace stowage::inputs
