// stowage_bench_offload: memory against time, for many plans of one deck's training step.

#include <fmt/core.h>

#include <algorithm>

#include "drivers/bench_offload/report.hpp"
#include "execution/backend.hpp"
#include "execution/error.hpp"
#include "forecast/plan/options.hpp"
#include "forecast/plan/read_deck.hpp"
#include "inputs/data/run_section.hpp"
#include "inputs/deck/check.hpp"
#include "inputs/deck/command_line.hpp"
#include "inputs/deck/words.hpp"
#include "parallel/job/agreement.hpp"
#include "parallel/run_main.hpp"
#include "run/command/output_files.hpp"
#include "run/command/same_deck.hpp"
#include "run/machine/machine.hpp"
#include "version/version.hpp"

namespace {

void require_usable(const stowage::drivers::BenchOffloadOptions& options) {
  using stowage::execution::throw_usage;
  if (options.samples < 1) throw_usage("--samples {}: must be at least 1", options.samples);
  if (options.seconds < 0)
    throw_usage("--time-limit {}: must be at least 0 (no limit)", options.seconds);
  stowage::inputs::require_words("--modes", options.modes, {"off", "scopes", "step"});
}

}  // namespace

int main(int argc, char** argv) {
  using namespace stowage;
  return parallel::run_main(argc, argv, [&](const parallel::Communicator& world) {
    drivers::BenchOffloadOptions options;
    std::string modes = "off";
    std::string only;
    const inputs::CommandLine command = inputs::parse_command_line(
        argc, argv,
        {.name = "stowage_bench_offload",
         .summary = "Runs the training step of a deck under many plans: memory against time.",
         .version = fmt::format("{} ({})", version::build_info().release,
                                version::build_info().git_describe),
         .options = {{"--samples", "Rounds: one step of every plan in each (default 50)",
                      &options.samples},
                     {"--time-limit",
                      "Start no round later than so many seconds after the start (0: any)",
                      &options.seconds},
                     {"--seconds", "", &options.seconds},  // the earlier name of --time-limit
                     {"--modes", "Graph modes: some of off,scopes,step (default off)", &modes,
                      "LIST"},
                     {"--only", "Parts of the names of plans to run: free,auto (default all)",
                      &only, "LIST"}},
         .without = {"--dry-run", "--quiet"}});
    run::require_same_command(world, command);
    if (!command.print_and_exit.empty()) {
      if (world.rank() == 0) fmt::print("{}", command.print_and_exit);
      return execution::Exit::valid;
    }
    options.modes = inputs::words(modes);
    options.only = inputs::words(only);
    require_usable(options);
    const inputs::Deck deck = forecast::read_deck(command, world.rank() == 0);
    if (command.print_config) {
      if (world.rank() == 0) fmt::print("{}", deck.text());
      return execution::Exit::valid;
    }
    run::require_same_deck(world, deck);
    (void)inputs::check_ranks(deck, world.size());
    const parallel::SequencePart part = forecast::sequence_part(deck, world);
    inputs::Data data = inputs::open_data(deck, part.index, part.parts);
    parallel::require_equal(world, "data", data.digest());
    results::require_apart(run::benchmark_outputs(deck, command, drivers::kOffloadPath),
                           run::input_files(deck, command, data));
    run::Machine machine(deck, world);
    drivers::BenchOffload bench(world, deck, options, data, machine);
    drivers::OffloadReport report(world, deck, command.json, machine, argc, argv);
    const std::vector<drivers::OffloadOutcome> outcomes = bench.run();
    return report.finish(outcomes, bench);
  });
}
