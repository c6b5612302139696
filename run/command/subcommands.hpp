#pragma once

#include <functional>
#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace stowage::run {

/// What a program does if its first word is `word`; `argv[0]` of what it is given is that word.
struct Subcommand {
  std::string word;
  std::function<void(int argc, const char* const* argv)> run;
};

/// main() of a program of such commands, which runs on one rank. Without a word, or with --help, it
/// prints `help`; with --version its name and build.
/// @return the program's exit code; 2 for a word that is not known
int run_subcommands(int argc, char** argv, const std::string& program, const std::string& help,
                    const std::vector<Subcommand>& commands);

/// Reads a command's options; prints their help and returns false if that was asked for.
/// @throws Error (exit 2) that says what cannot be read
bool parsed(CLI::App& app, int argc, const char* const* argv);

}  // namespace stowage::run
