#include "run/measure/command.hpp"

#include <fmt/core.h>

#include <CLI/CLI.hpp>

#include "inputs/deck/command_line.hpp"
#include "parallel/job/agreement.hpp"
#include "parallel/run_main.hpp"
#include "version/version.hpp"

namespace stowage::run {

int measure_main(int argc, char** argv, const std::string& name, const std::string& summary,
                 MeasureOptions& options, const std::function<void(CLI::App&)>& add_options,
                 const std::function<execution::Exit()>& run) {
  return parallel::run_main(argc, argv, [&](const parallel::Communicator& world) {
    bool help = false, version = false;
    CLI::App app(summary, name);
    app.add_option("--out", options.output, "The result set to write (HDF5)")->type_name("FILE");
    app.add_option("--json", options.json, "Write metrics and verdict as JSON lines, too")
        ->type_name("FILE");
    app.add_option("--device", options.device, "Index of the GPU")->check(CLI::NonNegativeNumber);
    app.add_option("--samples", options.samples,
                   fmt::format("Times taken of each case (default {})", options.samples))
        ->check(CLI::Range(1, 1000000));
    app.add_option("--seed", options.seed, "Of the random operands")->check(CLI::NonNegativeNumber);
    app.add_flag("--version", version, "Print the version");
    add_options(app);
    inputs::require_utf8(argc, argv);
    try {
      app.parse(argc, argv);
    } catch (const CLI::CallForHelp&) {
      help = true;
    } catch (const CLI::ParseError& error) {
      execution::throw_usage("command line: {} (--help lists the options)", error.what());
    }
    parallel::require_equal(world, "modes", help || version ? "--help" : "a run");
    if (help) {
      if (world.rank() == 0) fmt::print("{}", app.help());
      return execution::Exit::valid;
    }
    if (version) {
      if (world.rank() == 0)
        fmt::print("{} {} ({}, {})\n", name, version::build_info().release,
                   version::build_info().git_describe, version::build_info().compiler);
      return execution::Exit::valid;
    }
    if (world.size() != 1)
      execution::throw_environment("{} runs on 1 rank, {} were started", name, world.size());
    return run();
  });
}

}  // namespace stowage::run
