// stowage_bench_offload: memory against time, for many plans of one deck's training step.

#include <fmt/core.h>

#include "drivers/bench_offload/report.hpp"
#include "drivers/common/options.hpp"
#include "execution/backend.hpp"
#include "inputs/deck/command_line.hpp"
#include "parallel/run_main.hpp"
#include "version/version.hpp"

int main(int argc, char** argv) {
  using namespace stowage;
  return parallel::run_main(argc, argv, [&](const parallel::Communicator& world) {
    drivers::BenchOffloadOptions options;
    const inputs::CommandLine command = inputs::parse_command_line(
        argc, argv,
        {.name = "stowage_bench_offload",
         .summary = "Runs the training step of a deck under many plans: memory against time.",
         .version = fmt::format("{} ({})", version::build_info().release,
                                version::build_info().git_describe),
         .options = {
             {"--samples", "Steps of each plan", &options.samples},
             {"--mode", "Graph mode off, scopes or step; may be repeated", &options.modes},
             {"--only", "Part of the names of plans to run; may be repeated", &options.only}}});
    if (!command.print_and_exit.empty()) {
      if (world.rank() == 0) fmt::print("{}", command.print_and_exit);
      return execution::Exit::valid;
    }
    if (world.size() > 1) execution::throw_usage("stowage_bench_offload runs on one rank");
    const inputs::Deck deck = inputs::Deck::load(command.deck, command.overrides);
    drivers::refuse_unsupported(deck);
    drivers::Data data = drivers::open_data(deck, 0, 1);
    const std::unique_ptr<execution::Backend> backend = execution::make_host_backend();
    drivers::BenchOffload bench(deck, options, data, *backend);
    drivers::OffloadReport report(deck, argc, argv);
    const auto outcomes =
        bench.run([&](const drivers::OffloadOutcome& outcome) { report.add(outcome); });
    return report.finish(outcomes, bench.fit());
  });
}
