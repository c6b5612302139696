// stowage_bench_comm: the collectives of training by size, checked, timed, beside a library's.

#include <fmt/core.h>

#include "drivers/bench_comm/report.hpp"
#include "execution/error.hpp"
#include "forecast/plan/options.hpp"
#include "forecast/plan/read_deck.hpp"
#include "inputs/data/run_section.hpp"
#include "inputs/deck/command_line.hpp"
#include "parallel/run_main.hpp"
#include "run/command/output_files.hpp"
#include "run/command/same_deck.hpp"
#include "version/version.hpp"

int main(int argc, char** argv) {
  using namespace stowage;
  return parallel::run_main(argc, argv, [&](const parallel::Communicator& world) {
    drivers::CommOptions options;
    std::string only;
    const inputs::CommandLine command = inputs::parse_command_line(
        argc, argv,
        {.name = "stowage_bench_comm",
         .summary = "Checks and times the collectives of every group of a deck's process grid, by "
                    "size, beside the library's own.",
         .version = fmt::format("{} ({})", version::build_info().release,
                                version::build_info().git_describe),
         .options = {{"-b,--minbytes", "Least size (default 1K)", &options.sizes.least},
                     {"-e,--maxbytes", "Largest size (default 1G)", &options.sizes.most},
                     {"-f,--stepfactor", "From one size to the next (default 4)",
                      &options.sizes.factor},
                     {"-n,--iters", "Most calls of a sample, back to back (default 50)",
                      &options.calls},
                     {"--samples", "Times taken of each (default 20)", &options.samples},
                     {"--graph", "Issue the calls of a sample as one graph", &options.graph},
                     {"--beside", "What the GPU does meanwhile: products (default nothing)",
                      &options.overlapping},
                     {"--only", "Kinds: all_reduce,exchange (default all)", &only}},
         .without = {"--json", "--dry-run", "--quiet"}});
    run::require_same_command(world, command);
    if (!command.print_and_exit.empty()) {
      if (world.rank() == 0) fmt::print("{}", command.print_and_exit);
      return execution::Exit::valid;
    }
    options.kinds = drivers::kinds(only);
    drivers::require_usable(options, world.size());
    const inputs::Deck deck = forecast::read_deck(command, world.rank() == 0);
    if (command.print_config) {
      if (world.rank() == 0) fmt::print("{}", deck.text());
      return execution::Exit::valid;
    }
    run::require_same_deck(world, deck);
    results::require_apart({{{std::string(inputs::key(&inputs::RunConfig::output)),
                              run::benchmark_path(deck, drivers::kCommPath)}}},
                           run::deck_files(deck, command));
    run::Machine machine(deck, world);
    drivers::BenchComm bench(world, deck, options, machine);
    drivers::CommReport report(world, deck, machine, argc, argv);
    for (std::size_t group = 0; group < bench.groups(); ++group) {
      bench.open(group);
      for (const drivers::Kind kind : options.kinds) report.add(bench.run(kind));
    }
    bench.close();
    return report.finish();
  });
}
