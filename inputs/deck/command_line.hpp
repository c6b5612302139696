#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace stowage::inputs {

/// An option that one driver has besides the common ones: "--ranks", its help, where it goes, and
/// what --help calls a text: FILE, LIST. A bool is a flag; a vector takes the option several times.
/// Without help it is not in --help: an earlier name of another option.
struct ExtraOption {
  std::string name;
  std::string help;
  std::variant<bool*, std::int64_t*, double*, std::string*, std::vector<std::string>*> target;
  std::string value = "WORD";
};

/// Who asks: the words of --help and --version.
struct DriverInfo {
  std::string name;     ///< "stowage_train"
  std::string summary;  ///< one sentence
  std::string version;  ///< what --version prints
  std::vector<ExtraOption> options = {};
  bool needs_deck = true;  ///< a missing deck is a usage error
  std::string json_help = "Write metrics and verdict as JSON lines, too";
  /// Common options that would change nothing here: "--quiet". They are unknown to this driver.
  std::vector<std::string> without = {};
};

/// The command line that all drivers share:
///   DRIVER [DECK.toml] [section.key=value ...] [--from FILE.h5] [--dry-run] [--print-config] …
struct CommandLine {
  std::string deck;                    ///< path of the deck file, a shipped one's too, or empty
  std::string from;                    ///< result set whose deck is run again, or empty
  std::vector<std::string> overrides;  ///< "section.key=value", in order; --out is one of them
  std::string json;                    ///< JSON lines go here; empty: beside the result
  bool dry_run = false;
  bool print_config = false;
  bool quiet = false;

  /// The options that decide what is computed or exchanged, as given: "--trace t.json"; "none". Not
  /// the deck, of which the content counts, nor what only the first rank prints and writes.
  std::string options = "none";

  /// Text of --help, --help-keys, --help-key or --version: if not empty, print it on rank 0 and
  /// exit with 0.
  std::string print_and_exit;

  /// "a run", "--help", "--dry-run" or "--print-config": all ranks of a job are in one.
  std::string mode() const;
};

/// Throws a usage error (exit code 2), naming the option, for an argument that is not UTF-8: names
/// of files go into results, whose texts are.
void require_utf8(int argc, const char* const* argv);

/// Parses the command line. Throws a usage error (exit code 2) for anything unknown.
CommandLine parse_command_line(int argc, const char* const* argv, const DriverInfo& driver);

}  // namespace stowage::inputs
