// stowage_train: trains a hybrid model from a deck and publishes what happened.

#include <fmt/core.h>

#include "forecast/plan/read_deck.hpp"
#include "parallel/run_main.hpp"
#include "run/command/same_deck.hpp"
#include "run/train.hpp"
#include "version/version.hpp"

int main(int argc, char** argv) {
  using namespace stowage;
  const auto program = [&](const parallel::Communicator& world) {
    run::TrainOptions options;
    const inputs::CommandLine command = inputs::parse_command_line(
        argc, argv,
        {.name = "stowage_train",
         .summary = "Trains a hybrid Mamba-2 / attention / MoE language model from a deck.",
         .version = fmt::format("{} ({}, {})", version::build_info().release,
                                version::build_info().git_describe, version::build_info().compiler),
         .options = {{"--time-ops", "Time the last N steps op by op, and say where the time went",
                      &options.time_ops},
                     {"--trace",
                      "Draw the last step, with who waits for whom, as a Chrome trace in this file",
                      &options.trace, "FILE"},
                     {"--dump-step", "Write loss, gradients and parameters of step N",
                      &options.dump_step},
                     {"--dump", "Where to (HDF5); default: <run.name>.step<N>.h5", &options.dump,
                      "FILE"},
                     {"--evaluate-only", "Loss and perplexity of held-out data, and no step",
                      &options.evaluate_only},
                     {"--logits", "With it: tokens and logits of its first batch go here (HDF5)",
                      &options.logits, "FILE"}},
         .json_help = "The JSON lines to write; default: beside the result set"});
    run::require_same_command(world, command);
    if (!command.print_and_exit.empty()) {
      if (world.rank() == 0) fmt::print("{}", command.print_and_exit);
      return execution::Exit::valid;
    }
    return run::train(world, command, options, argc, argv);
  };
  return parallel::run_main(argc, argv, program, parallel::Stops::between_steps);
}
