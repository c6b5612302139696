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
    drivers::FixedOptions fixed;
    std::string only;
    inputs::CommandLine command = inputs::parse_command_line(
        argc, argv,
        {.name = "stowage_bench_comm",
         .summary = "Checks and times the collectives of every group of a deck's process grid, by "
                    "size, beside the library's own.",
         .version = fmt::format("{} ({})", version::build_info().release,
                                version::build_info().git_describe),
         .options =
             {{"-b,--minbytes", "Least size (default 1K)", &options.sizes.least, "BYTES"},
              {"-e,--maxbytes", "Largest size (default 1G)", &options.sizes.most, "BYTES"},
              {"-f,--stepfactor", "From one size to the next (default 4)", &options.sizes.factor},
              {"-n,--iters", "Most calls of a sample, back to back (default 50)", &options.calls},
              {"-w,--warmup_iters", "Samples that are not kept (default 2)", &options.warm_up},
              {"-c,--check", "Checks of each, 1 at least (default 1)", &options.checks},
              {"-d,--datatype", "float: training sums in fp32", &fixed.datatype, "TYPE"},
              {"-o,--op", "sum", &fixed.op, "OP"},
              {"-g,--ngpus", "1: a rank has one GPU", &fixed.gpus},
              {"--samples", "Times taken of each (default 20)", &options.samples},
              {"--graph", "Issue the calls of a sample as one graph", &options.graph},
              {"--beside", "What the GPU does meanwhile: products (default nothing)",
               &options.overlapping},
              {"--only", "Kinds: all_reduce,exchange (default all)", &only, "LIST"}},
         .needs_deck = false,
         .without = {"--dry-run", "--quiet"}});
    run::require_same_command(world, command);
    if (!command.print_and_exit.empty()) {
      if (world.rank() == 0) fmt::print("{}", command.print_and_exit);
      return execution::Exit::valid;
    }
    if (command.deck.empty() && command.from.empty())  // all ranks are one group: no model counts
      command.overrides.insert(command.overrides.begin(),
                               {"model.pattern=M-", "data.source=synthetic", "run.name=comm"});
    options.kinds = drivers::kinds(only);
    drivers::require_usable(fixed);
    drivers::require_usable(options, world.size());
    const inputs::Deck deck = forecast::read_deck(command, world.rank() == 0);
    if (command.print_config) {
      if (world.rank() == 0) fmt::print("{}", deck.text());
      return execution::Exit::valid;
    }
    run::require_same_deck(world, deck);
    results::require_apart(run::benchmark_outputs(deck, command, drivers::kCommPath),
                           run::deck_files(deck, command));
    run::Machine machine(deck, world);
    drivers::BenchComm bench(world, deck, options, machine);
    drivers::CommReport report(world, deck, command.json, machine, argc, argv);
    for (std::size_t group = 0; group < bench.groups(); ++group) {
      bench.open(group);
      for (const drivers::Kind kind : options.kinds) report.add(bench.run(kind));
    }
    bench.close();
    return report.finish();
  });
}
