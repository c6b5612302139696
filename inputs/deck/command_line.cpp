// The one place that sees CLI11.
#include "inputs/deck/command_line.hpp"

#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <memory>
#include <string_view>
#include <type_traits>

#include "execution/error.hpp"
#include "inputs/deck/help.hpp"
#include "inputs/deck/shipped.hpp"
#include "inputs/deck/value.hpp"

namespace stowage::inputs {

using execution::throw_usage;

namespace {

void add(CLI::App& app, const ExtraOption& option) {
  const auto add_to = [&](auto* target) {
    using Target = std::remove_pointer_t<decltype(target)>;
    if constexpr (std::is_same_v<Target, bool>) {
      return app.add_flag(option.name, *target, option.help);
    } else {
      const bool number = std::is_arithmetic_v<Target>;
      CLI::Option* made = app.add_option(option.name, *target, option.help);
      if constexpr (std::is_same_v<Target, std::vector<std::string>>)  // else it takes all words
        made->expected(1)
            ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
            ->allow_extra_args(false);
      return made->type_name(number ? "N" : option.value);
    }
  };
  CLI::Option* added = std::visit(add_to, option.target);
  if (option.help.empty()) added->group("");  // not in --help
}

/// Sorts positional words: one deck, and overrides.
void take_words(CommandLine& line, const std::vector<std::string>& words) {
  for (const std::string& word : words) {
    // A path may hold '=', but hardly before the first dot of "section.key=value".
    const std::size_t equals = word.find('=');
    const bool is_override = equals != std::string::npos && word.find('/') > equals;
    if (is_override) {
      line.overrides.push_back(word);
    } else if (line.deck.empty()) {
      line.deck = word;
    } else {
      throw_usage("command line: two decks, '{}' and '{}'; overrides are section.key=value",
                  line.deck, word);
    }
  }
}

/// CommandLine::options of what was parsed.
std::string given_options(const CLI::App& app) {
  constexpr std::array<std::string_view, 6> kElsewhere = {"words", "--deck", "--from",
                                                          "--out", "--json", "--quiet"};
  std::string text;
  for (const CLI::Option* option : app.get_options()) {
    const std::string name = option->get_name();
    if (option->count() == 0 || std::ranges::find(kElsewhere, name) != kElsewhere.end()) continue;
    text += (text.empty() ? "" : " ") + name;
    if (option->get_expected_max() == 0) continue;  // a flag
    for (const std::string& result : option->results()) text += " " + result;
  }
  return text.empty() ? "none" : text;
}

/// --help: what may be given in which order, then the options.
class DeckFormatter : public CLI::Formatter {
 public:
  std::string make_usage(const CLI::App* /*app*/, std::string name) const override {
    return fmt::format("Usage: {} [OPTIONS] [DECK.toml] [section.key=value ...]\n", name);
  }
  std::string make_positionals(const CLI::App* /*app*/) const override { return {}; }
};

/// The blank lines of groups that --help does not show are left out.
std::string options_help(const CLI::App& app) {
  std::string options = app.help();
  options.erase(options.find_last_not_of('\n') + 1);
  return options + "\n";
}

/// One name for one thing: of two, one would be passed over without a word.
void require_one_output(const std::string& out, const std::vector<std::string>& overrides) {
  for (const std::string& one : overrides)
    if (!out.empty() && one.starts_with("run.output="))
      throw_usage("command line: --out {} and {}: give one of them", out, one);
}

}  // namespace

std::string CommandLine::mode() const {
  if (!print_and_exit.empty()) return "--help";
  if (print_config) return "--print-config";
  return dry_run ? "--dry-run" : "a run";
}

void require_utf8(int argc, const char* const* argv) {
  for (int i = 1; i < argc; ++i) {
    const std::string_view word = argv[i];
    if (is_utf8(word)) continue;
    const std::size_t equals = word.find('=');
    std::string what = fmt::format("argument {}", i);
    if (equals != std::string_view::npos && is_utf8(word.substr(0, equals)))
      what = word.substr(0, equals);
    else if (argv[i - 1][0] == '-' && is_utf8(argv[i - 1]))
      what = argv[i - 1];
    throw_usage("command line: {} is not UTF-8, which names and texts must be", what);
  }
}

CommandLine parse_command_line(int argc, const char* const* argv, const DriverInfo& driver) {
  require_utf8(argc, argv);
  CommandLine line;
  std::vector<std::string> words;
  std::string out, key;
  bool help = false, keys = false, version = false;

  CLI::App app(driver.summary, driver.name);
  app.set_help_flag();  // ours never ends the process
  app.formatter(std::make_shared<DeckFormatter>());
  const auto text = [&](const char* name, std::string& to, const char* what, const char* value) {
    app.add_option(name, to, what)->type_name(value);
  };
  app.add_option("words", words)->expected(0, -1);
  text("--deck", line.deck, "The deck; the same as naming it alone", "FILE");
  text("--from", line.from, "Run the deck stored in a result set again", "FILE");
  text("--out", out, "The result set to write: the same as run.output=FILE", "FILE");
  text("--json", line.json, driver.json_help.c_str(), "FILE");
  app.add_flag("--dry-run", line.dry_run, "Print what would run: parameters, memory, flops");
  app.add_flag("--print-config", line.print_config, "Print the resolved deck, itself a deck");
  app.add_flag("--quiet", line.quiet, "Print the verdict only, and the checks if one failed");
  app.add_flag("--help-keys", keys, "List the keys of a deck");
  text("--help-key", key, "Explain a key or a section of the deck", "KEY");
  app.add_flag("-h,--help", help, "This text");
  app.add_flag("--version", version, "Print the version");
  for (const std::string& name : driver.without) app.remove_option(app.get_option(name));
  for (const ExtraOption& option : driver.options) add(app, option);

  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    throw_usage("command line: {} (--help lists the options)", error.what());
  }
  if (help) line.print_and_exit = options_help(app);
  if (keys) line.print_and_exit = help_keys();
  if (version) line.print_and_exit = fmt::format("{} {}\n", driver.name, driver.version);
  if (!key.empty()) line.print_and_exit = help_key(key);
  if (!line.print_and_exit.empty()) return line;

  line.options = given_options(app);
  take_words(line, words);
  require_one_output(out, line.overrides);
  if (!out.empty()) line.overrides.push_back("run.output=" + to_toml(Value(out)));
  if (!line.deck.empty() && !line.from.empty()) {
    throw_usage("command line: deck '{}' and --from '{}': give one of them", line.deck, line.from);
  }
  if (!line.deck.empty()) line.deck = shipped_file("deck", "", line.deck);
  if (driver.needs_deck && line.deck.empty() && line.from.empty()) {
    throw_usage("command line: no deck: {} DECK.toml [section.key=value ...]", driver.name);
  }
  return line;
}

}  // namespace stowage::inputs
