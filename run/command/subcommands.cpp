#include "run/command/subcommands.hpp"

#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <algorithm>

#include "execution/error.hpp"
#include "inputs/deck/command_line.hpp"
#include "parallel/run_main.hpp"
#include "version/version.hpp"

namespace stowage::run {

int run_subcommands(int argc, char** argv, const std::string& program, const std::string& help,
                    const std::vector<Subcommand>& commands) {
  return parallel::run_main(argc, argv, [&](const parallel::Communicator& world) {
    if (world.size() != 1)
      execution::throw_environment("{} runs on 1 rank, {} were started", program, world.size());
    const std::string word = argc > 1 ? argv[1] : "";
    const auto command = std::ranges::find(commands, word, &Subcommand::word);
    if (command != commands.end()) {
      command->run(argc - 1, argv + 1);
    } else if (word == "--version") {
      const version::BuildInfo& build = version::build_info();
      fmt::print("{} {} ({})\n", program, build.release, build.git_describe);
    } else if (word == "--help" || word == "-h") {
      fmt::print("{}", help);
    } else {
      std::string allowed;
      for (const Subcommand& known : commands)
        allowed += (allowed.empty() ? "" : ", ") + known.word;
      if (word.empty()) execution::throw_usage("no command; allowed: {}; see --help", allowed);
      execution::throw_usage("command '{}' is not known; allowed: {}", word, allowed);
    }
    return execution::Exit::valid;
  });
}

bool parsed(CLI::App& app, int argc, const char* const* argv) {
  inputs::require_utf8(argc, argv);
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    fmt::print("{}", app.help());
    return false;
  } catch (const CLI::ParseError& error) {
    execution::throw_usage("command line: {} (--help lists the options)", error.what());
  }
  return true;
}

}  // namespace stowage::run
